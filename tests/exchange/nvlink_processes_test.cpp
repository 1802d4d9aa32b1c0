// Ranks as processes that dispatch and combine in a loop, and what happens to the others when one of them dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "comm/job.hpp"
#include "transports/leftovers.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;

class NvlinkProcesses : public ::testing::Test {
 protected:
  // Whatever a rank would leave running becomes a child of this process, and is found.
  NvlinkProcesses() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~NvlinkProcesses() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(test::count_leftovers(sockets_.path()).files, 0) << "in the socket directory";
  }

  void start_all(testing::Job& job, int size, const std::vector<std::string>& mode) {
    for (int rank = 0; rank < size; ++rank) job.start(rank, mode, {{"MOELINK_SOCKET_DIR", sockets_.path()}});
    job.wait_until_ready();
  }

  test::TestDirectory sockets_;
};

TEST_F(NvlinkProcesses, EveryOutputIsRightInMemoryOfSeveralProcesses) {
  for (const int size : {3, 4}) {
    testing::Job job(MOELINK_RANK_PROGRAM, size, "30");
    start_all(job, size, {"loop", "60"});
    for (int r = 0; r < size; ++r) EXPECT_EQ(job.rank(r).wait(40s), 0) << job.rank(r).output();
  }
}

TEST_F(NvlinkProcesses, KilledRankEndsTheOthersWithinTheDeadlineAndIsNamed) {
  for (const int victim : {0, 2}) {
    testing::Job job(MOELINK_RANK_PROGRAM, 4, "4");
    start_all(job, 4, {"loop", "1000000"});
    std::this_thread::sleep_for(200ms);
    job.rank(victim).signal(SIGKILL);
    job.expect_errors(victim, "rank " + std::to_string(victim), 4s + 1s);
    EXPECT_EQ(job.rank(victim).wait(40s), -SIGKILL);
  }
}

}  // namespace
}  // namespace moelink
