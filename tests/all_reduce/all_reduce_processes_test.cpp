// Ranks as processes that sum in a loop, and what happens to the others when one of them dies, stops or is late.
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
using Clock = std::chrono::steady_clock;

const std::string kForever = "1000000";
constexpr auto kLong = 40s;
constexpr auto kGrace = 3s;  // the rank at which the others meet waits a moment for one that is stopped

class AllReduceProcesses : public ::testing::Test {
 protected:
  // Whatever a rank would leave running becomes a child of this process, and is found.
  AllReduceProcesses() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~AllReduceProcesses() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(test::count_leftovers(sockets_.path()).files, 0) << "in the socket directory";
  }

  void start(testing::Job& job, int rank, const std::vector<std::string>& mode) {
    job.start(rank, mode, {{"MOELINK_SOCKET_DIR", sockets_.path()}});
  }
  void start_all(testing::Job& job, int size, const std::vector<std::string>& mode) {
    for (int rank = 0; rank < size; ++rank) {
      start(job, rank, mode);
    }
    job.wait_until_ready();
  }

  test::TestDirectory sockets_;
};

TEST_F(AllReduceProcesses, SumEveryMessageRightlyAndLeaveNothingBehind) {
  testing::Job job(MOELINK_RANK_PROGRAM, 4, "30");
  start_all(job, 4, {"loop", "40"});
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 0) << job.rank(r).output();
  }
}

TEST_F(AllReduceProcesses, KilledInTheMiddleOfALoopEndsTheOthersWithinTheDeadline) {
  for (const int victim : {0, 2}) {
    testing::Job job(MOELINK_RANK_PROGRAM, 4, "4");
    start_all(job, 4, {"loop", kForever});
    std::this_thread::sleep_for(200ms);
    job.rank(victim).signal(SIGKILL);
    job.expect_errors(victim, "rank " + std::to_string(victim), 4s + 1s);
    EXPECT_EQ(job.rank(victim).wait(kLong), -SIGKILL);
  }
}

TEST_F(AllReduceProcesses, StopLongerThanTheDeadlineIsATimeout) {
  testing::Job job(MOELINK_RANK_PROGRAM, 4, "1");
  start_all(job, 4, {"loop", kForever});
  std::this_thread::sleep_for(100ms);
  job.rank(2).signal(SIGSTOP);
  job.expect_errors(2, "rank 2", 1s + kGrace);
  job.rank(2).signal(SIGCONT);
  EXPECT_EQ(job.rank(2).wait(kLong), 3) << "the rank that was stopped must learn of it: " << job.rank(2).output();
}

TEST_F(AllReduceProcesses, StopShorterThanTheDeadlineHarmsNobody) {
  testing::Job job(MOELINK_RANK_PROGRAM, 3, "30");
  start_all(job, 3, {"loop", "200"});
  job.rank(1).signal(SIGSTOP);
  std::this_thread::sleep_for(400ms);
  job.rank(1).signal(SIGCONT);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 0) << job.rank(r).output();
  }
}

TEST_F(AllReduceProcesses, LateRankIsWaitedForWithinTheDeadline) {
  testing::Job job(MOELINK_RANK_PROGRAM, 3, "30");
  start(job, 0, {"loop", "8"});
  start(job, 1, {"loop", "8"});
  start(job, 2, {"loop", "8", "300"});
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 0) << job.rank(r).output();
  }
}

TEST_F(AllReduceProcesses, RankLaterThanTheDeadlineIsATimeoutOnEveryRank) {
  testing::Job job(MOELINK_RANK_PROGRAM, 3, "1");
  start(job, 0, {"loop", "8"});
  start(job, 1, {"loop", "8"});
  start(job, 2, {"loop", "8", "2500"});
  job.wait_until_ready();
  job.expect_errors(2, "rank 2", 1s + kGrace);
  EXPECT_EQ(job.rank(2).wait(kLong), 3) << job.rank(2).output();
}

}  // namespace
}  // namespace moelink
