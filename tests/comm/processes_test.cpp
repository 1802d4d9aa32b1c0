// Ranks as processes that a launcher started, and what happens to the others when one of them dies, stops or is late.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>

#include "comm/job.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Ranks that run rank_program.
struct Job : testing::Job {
  Job(int size, const std::string& deadline_s) : testing::Job(MOELINK_RANK_PROGRAM, size, deadline_s) {}
};

constexpr int kForever = 1'000'000;
constexpr auto kLong = 20s;
constexpr auto kAtOnce = 5s;  // on a busy machine; the deadline is longer
constexpr auto kGrace = 2s;   // a second to answer, one to leave a hub that is stopped

TEST(Processes, MeetLearnAndLeaveNothingBehind) {
  Job job(4, "20");
  job.start_all({"once"});
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 0) << job.rank(r).output();
    EXPECT_NE(job.rank(r).output().find("rank " + std::to_string(r) + " of 4 on 1 nodes"), std::string::npos);
  }
  EXPECT_NE(job.rank(0).output().find("shared"), std::string::npos) << job.rank(0).output();
}

TEST(Processes, OneMachineCanPlaySeveralNodes) {
  Job job(4, "20");
  for (int r = 0; r < 4; ++r) {
    job.start(r, {"once"}, {{"MOELINK_NODE", r < 2 ? "left" : "right"}});
  }
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 0) << job.rank(r).output();
    EXPECT_NE(job.rank(r).output().find("on 2 nodes"), std::string::npos) << job.rank(r).output();
  }
  EXPECT_NE(job.rank(0).output().find("none"), std::string::npos) << "links between nodes do not load and store";
}

class ProcessesOfRank : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessesOfRank, ::testing::Values(0, 2));

TEST_P(ProcessesOfRank, KilledRankEndsTheOthersAtOnce) {
  const int victim = GetParam();
  Job job(4, "30");
  job.start_all({"loop", std::to_string(kForever)});
  job.wait_until_ready();
  job.rank(victim).signal(SIGKILL);
  job.expect_errors(victim, "rank " + std::to_string(victim), kAtOnce);
  EXPECT_EQ(job.rank(victim).wait(kLong), -SIGKILL);
}

TEST_P(ProcessesOfRank, StopLongerThanTheDeadlineIsATimeoutThatNamesTheRank) {
  const int victim = GetParam();
  Job job(3, "0.5");
  job.start_all({"loop", std::to_string(kForever)});
  job.wait_until_ready();
  job.rank(victim).signal(SIGSTOP);
  job.expect_errors(victim, "rank " + std::to_string(victim), 500ms + kGrace);
  job.rank(victim).signal(SIGCONT);
  EXPECT_EQ(job.rank(victim).wait(kLong), 3)
      << "the rank that was stopped must learn of it: " << job.rank(victim).output();
}

TEST_P(ProcessesOfRank, StopShorterThanTheDeadlineHarmsNobody) {
  Job job(3, "10");
  job.start_all({"loop", "100"});
  job.wait_until_ready();
  job.rank(GetParam()).signal(SIGSTOP);
  std::this_thread::sleep_for(300ms);
  job.rank(GetParam()).signal(SIGCONT);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 0) << job.rank(r).output();
  }
}

TEST(Processes, LateRankIsNamedAndFailsToo) {
  Job job(3, "0.4");
  job.start(0, {"once"});
  job.start(1, {"once"});
  std::this_thread::sleep_for(900ms);
  job.start(2, {"once"});
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 3);
    EXPECT_NE(job.rank(r).output().find("rank 2 of 3 did not join"), std::string::npos) << job.rank(r).output();
  }
  EXPECT_EQ(job.rank(2).wait(kLong), 3);
  EXPECT_NE(job.rank(2).output().find("did not reach rank 0"), std::string::npos) << job.rank(2).output();
}

TEST(Processes, WrongKeyFailsOnEveryRank) {
  Job job(3, "0.5");
  for (int r = 0; r < 3; ++r) {
    job.start(r, {"once"}, {{"MOELINK_SECRET", r == 1 ? "guess" : "right"}});
  }
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 3);
    EXPECT_NE(job.rank(r).output().find("wrong key"), std::string::npos) << job.rank(r).output();
  }
}

TEST(Processes, DuplicateRankIsRefused) {
  Job job(3, "1");
  job.start(0, {"once"});
  job.start(1, {"once"});
  job.start(1, {"once"});
  int refused = 0;
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(job.rank(r).wait(kLong), 3);
    refused += job.rank(r).output().find("rank 1 has already joined") != std::string::npos &&
                       job.rank(r).output().find("turned this rank") != std::string::npos
                   ? 1
                   : 0;
  }
  EXPECT_EQ(refused, 1);
}

TEST(Processes, NonsenseFromTheLauncherIsNamed) {
  Job job(2, "1");
  job.start(0, {"once"}, {{"RANK", "zero"}});
  EXPECT_EQ(job.rank(0).wait(kLong), 3);
  EXPECT_NE(job.rank(0).output().find("RANK=zero"), std::string::npos) << job.rank(0).output();
}

}  // namespace
}  // namespace moelink
