// Puts between processes: over the soft NIC and over UCX; and what is seen of a process that is killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "process_group.hpp"
#include "put_rank.hpp"
#include "transports/ucx/put.hpp"
#if MOELINK_HAVE_VERBS
#include "soft_nic_case.hpp"
#endif

namespace moelink::test {
namespace {

using Make = std::function<std::unique_ptr<PutTransport>(const PutOptions&)>;
constexpr std::size_t kBytes = 300'001;

/// Every rank puts to every other, several times. The exit code.
int exchange(PutRank& rank) {
  for (std::uint32_t round = 0; round < 5; ++round) {
    const std::size_t slot = kBytes * static_cast<std::size_t>(rank.rank());
    rank.fill(slot, kBytes, round * 16 + static_cast<unsigned>(rank.rank()));
    for (const int peer : rank.remotes()) rank.put(rank.make(peer, slot, kBytes, round));
    rank.wait((round + 1) * rank.remotes().size(), (round + 1) * rank.remotes().size());
    for (const int peer : rank.remotes()) {
      const std::size_t theirs = kBytes * static_cast<std::size_t>(peer);
      if (rank.num_wrong(theirs, kBytes, round * 16 + static_cast<unsigned>(peer)) != 0) return 3;
    }
    rank.meet().barrier();
  }
  return 0;
}

/// The last rank dies in the middle; the first one, which puts to it, learns its name.
int outlive(PutRank& rank) {
  rank.meet().barrier();
  const int victim = rank.size() - 1;
  if (rank.rank() == victim) ::kill(::getpid(), SIGKILL);
  if (rank.rank() != 0) return 0;
  try {
    const Deadline deadline = Deadline::after(PutRank::kPatience);
    for (std::uint32_t i = 0; !deadline.expired(); ++i) {
      rank.put(rank.make(victim, 0, 5000, i % 60'000));
      rank.poll_once();
    }
    return 4;
  } catch (const PutFailure& failure) {
    return failure.peer() == victim ? 0 : 5;
  }
}

std::vector<std::string> run_forked(int num_ranks, const Make& make, int (*scenario)(PutRank&)) {
  ProcessMeeting meeting(num_ranks);
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        ProcessRendezvous meet(meeting, rank);
        PutOptions options{.rank = rank, .num_ranks = num_ranks};
        for (int peer = 0; peer < num_ranks; ++peer) {
          if (peer != rank) options.remotes.push_back(peer);
        }
        PutRank one(meet, make(options), options, kBytes * static_cast<std::size_t>(num_ranks));
        code = scenario(one);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  return wait_for(children, std::chrono::seconds(40));
}

#if MOELINK_HAVE_VERBS
TEST(PutProcesses, TheSoftNicCarriesPutsBetweenProcessesWithEveryMischief) {
  const auto make = [](const PutOptions& options) { return make_soft_put(options, "reorder,split,delay_us=100"); };
  EXPECT_EQ(run_forked(3, make, exchange), std::vector<std::string>(3));
}

TEST(PutProcesses, AKilledProcessIsAnErrorThatNamesItOverTheSoftNic) {
  const auto make = [](const PutOptions& options) { return make_soft_put(options, ""); };
  EXPECT_EQ(run_forked(3, make, outlive), (std::vector<std::string>{"", "", "signal 9"}));
}
#endif

#if MOELINK_HAVE_UCX
TEST(PutProcesses, UcxCarriesPutsBetweenProcessesOverWhatItChoosesAndOverTcp) {
  EXPECT_EQ(run_forked(3, make_ucx_put, exchange), std::vector<std::string>(3));
  const auto over_tcp = [](const PutOptions& options) {
    ::setenv("UCX_TLS", "tcp", 1);
    return make_ucx_put(options);
  };
  EXPECT_EQ(run_forked(3, over_tcp, exchange), std::vector<std::string>(3));
}

TEST(PutProcesses, AKilledProcessIsAnErrorThatNamesItOverUcx) {
  EXPECT_EQ(run_forked(3, make_ucx_put, outlive), (std::vector<std::string>{"", "", "signal 9"}));
}
#endif

}  // namespace
}  // namespace moelink::test
