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

#if defined(__SANITIZE_ADDRESS__) || !MOELINK_HAVE_UCX
constexpr bool kCanPut = false;  // UCX is not built with sanitizers
#else
constexpr bool kCanPut = true;
#endif

/// Ranks that have several objects behind each other, and come together after them; on one node and on several. Rank 0,
/// which is stopped once, has the others' connections.
class StoppedRank : public NvlinkProcesses, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(PerNode, StoppedRank, ::testing::Values("0", "1"));

TEST_P(StoppedRank, EndsTheOthersAfterOneDeadlineAndIsNamed) {
  const std::string ranks_per_node = GetParam();
  if (ranks_per_node != "0" && !kCanPut) GTEST_SKIP() << "no UCX in this build, or one that a sanitizer cannot see";
  for (const int victim : {0, 2}) {
    testing::Job job(MOELINK_RANK_PROGRAM, 3, "2");
    for (int rank = 0; rank < 3; ++rank) {
      job.start(rank, {"queue", "1000000"},
                {{"MOELINK_SOCKET_DIR", sockets_.path()},
                 {"MOELINK_RANKS_PER_NODE", ranks_per_node},
                 {"MOELINK_PUT", "ucx"}});
    }
    job.wait_until_ready();
    std::this_thread::sleep_for(200ms);
    job.rank(victim).signal(SIGSTOP);
    job.expect_errors(victim, "rank " + std::to_string(victim), 2s + 2500ms);
    job.rank(victim).signal(SIGKILL);
    EXPECT_EQ(job.rank(victim).wait(40s), -SIGKILL);
  }
}

}  // namespace
}  // namespace moelink
