// Shared host memory between processes: forked ranks, killed ranks, and what is left behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "leftovers.hpp"
#include "peer_scenario.hpp"

namespace moelink::test {
namespace {

std::vector<std::string> run_forked(int num_ranks, const std::string& scenario, const std::string& socket_directory,
                                    std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  ProcessMeeting meeting(num_ranks, deadline);
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(run_scenario(meeting, rank, MemoryKind::shm, -1, scenario, socket_directory));
    }
    children.push_back(child);
  }
  return wait_for(children, std::chrono::seconds(40));
}

TEST(ShmProcesses, FourForkedRanksShareMemoryAndLeaveNothing) {
  const TestDirectory directory;
  EXPECT_EQ(run_forked(4, "exchange", directory.path()), std::vector<std::string>(4));
  EXPECT_EQ(count_leftovers(directory.path()).files, 0);
}

TEST(ShmProcesses, MemoryOutlivesAnOwnerWhoLeavesEarly) {
  const TestDirectory directory;
  EXPECT_EQ(run_forked(3, "outlive", directory.path()), std::vector<std::string>(3));
}

TEST(ShmProcesses, AKilledPeerLeavesNothingAndHoldsNobodyUp) {
  const TestDirectory directory;
  EXPECT_EQ(run_forked(4, "killed", directory.path()), (std::vector<std::string>{"", "", "", "signal 9"}));
  EXPECT_EQ(count_leftovers(directory.path()).files, 0);
}

TEST(ShmProcesses, ARankThatDiesBeforeItComesIsAnErrorForTheOthers) {
  const TestDirectory directory;
  EXPECT_EQ(run_forked(3, "late", directory.path(), std::chrono::seconds(1)),
            (std::vector<std::string>{"", "", "signal 9"}));
  EXPECT_EQ(count_leftovers(directory.path()).files, 0);
}

TEST(ShmProcesses, StartedProgramsShareMemoryToo) {
  const TestDirectory directory;
  const ProcessMeeting meeting(2);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(start_peer(meeting, rank, "shm", -1, "exchange", directory.path()));
  }
  EXPECT_EQ(wait_for(children, std::chrono::seconds(40)), std::vector<std::string>(2));
}

}  // namespace
}  // namespace moelink::test
