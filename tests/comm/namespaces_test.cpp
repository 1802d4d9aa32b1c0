// Several hosts on one machine: network namespaces, joined by a pair of virtual interfaces.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/child_process.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using testing::ChildProcess;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Two namespaces, "hosts" 0 and 1, with one interface each: 10.77.0.<host + 1> and fd77::<host + 1>.
class TwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run("ip netns add " + host(0))) {
      GTEST_SKIP() << "network namespaces are not permitted (ip netns add failed)";
    }
    bool up = run("ip netns add " + host(1)) && run("ip link add " + interface(0) + " netns " + host(0) +
                                                    " type veth peer name " + interface(1) + " netns " + host(1));
    for (int h = 0; up && h < 2; ++h) {
      const std::string ip = "ip -n " + host(h) + " ";
      const std::string number = std::to_string(h + 1);
      up = run(ip + "link set lo up") && run(ip + "link set " + interface(h) + " up") &&
           run(ip + "addr add 10.77.0." + number + "/24 dev " + interface(h));
      // A kernel without IPv6 still has the rest.
      has_ipv6_ = run(ip + "addr add fd77::" + number + "/64 dev " + interface(h) + " nodad") && has_ipv6_;
    }
    if (!up) {
      GTEST_SKIP() << "virtual interfaces are not permitted (ip link add ... type veth failed)";
    }
  }
  void TearDown() override {
    run("ip netns del " + host(0));
    run("ip netns del " + host(1));
  }

  std::string host(int h) const { return name_ + (h == 0 ? "a" : "b"); }
  std::string interface(int h) const { return name_ + (h == 0 ? "x" : "y"); }

  /// Ranks 0 and 1 on host 0, ranks 2 and 3 on host 1; all must succeed.
  void meet_at(const std::string& address, bool choose_interface) {
    std::vector<std::unique_ptr<ChildProcess>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      const int h = rank / 2;
      testing::Variables variables = {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "4"},
                                      {"MASTER_ADDR", address},       {"MASTER_PORT", "29500"},
                                      {"MOELINK_NODE", host(h)},      {"MOELINK_DEADLINE", "10"}};
      if (choose_interface) {
        variables["MOELINK_SOCKET_IFNAME"] = interface(h);
      }
      ranks.push_back(std::make_unique<ChildProcess>(
          std::vector<std::string>{"ip", "netns", "exec", host(h), MOELINK_RANK_PROGRAM, "once"}, variables));
    }
    for (auto& rank : ranks) {
      EXPECT_EQ(rank->wait(20s), 0) << rank->output();
      EXPECT_NE(rank->output().find("on 2 nodes"), std::string::npos) << rank->output();
    }
  }

  bool has_ipv6_ = true;

 private:
  std::string name_ = "ml" + std::to_string(::getpid());
};

TEST_F(TwoHosts, MeetOverIpv4) { meet_at("10.77.0.1", false); }

TEST_F(TwoHosts, MeetOverTheChosenInterface) { meet_at("10.77.0.1", true); }

TEST_F(TwoHosts, MeetOverIpv6) {
  if (!has_ipv6_) {
    GTEST_SKIP() << "this kernel has no IPv6";
  }
  meet_at("fd77::1", true);
}

}  // namespace
}  // namespace moelink
