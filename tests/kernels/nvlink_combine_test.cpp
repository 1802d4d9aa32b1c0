// The nvlink combine on host threads, ranks in one process: bits, order, reuse, and what happens when a rank is
// missing.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/nvlink_combine_case.hpp"

namespace moelink::test {
namespace {

/// Runs one call on every rank, each on threads of its own.
template <class Body>
void on_ranks(int num_ranks, Body&& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

void check_once(const CombineCase& c, const std::string& where, unsigned seed) {
  CombineRanks ranks(c);
  ranks.draw(c, seed);
  on_ranks(c.num_ranks, [&](int r) {
    BlockTeam team(c.grid);
    ranks.run(r, team);
  });
  ranks.expect_outputs(where);
}

constexpr unsigned kEveryRank = ~0U;

// Both kernels, where both can be asked.
void check(CombineCase c, const std::string& where = "", unsigned seed = 1) {
  check_once(c, where, seed);
  if (c.tp_size != 1) return;
  c.many = kEveryRank;
  c.sum_blocks = c.send_blocks;
  check_once(c, where + ", many tokens", seed);
}

TEST(NvlinkCombine, EveryNumberOfRanksAndGroupsGivesTheBitsOfTheDocumentedOrder) {
  for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
    for (int tp_size = 1; tp_size <= num_ranks; ++tp_size) {
      if (num_ranks % tp_size != 0) continue;
      CombineCase c{.num_ranks = num_ranks, .tp_size = tp_size, .max_tokens = 7, .num_experts = 13, .top_k = 5};
      for (int group = 0; group < c.num_groups(); ++group) c.tokens.push_back((5 + group * 3) % 8);
      c.split = num_ranks % 2;
      check(c, std::to_string(num_ranks) + " ranks, groups of " + std::to_string(tp_size));
    }
  }
}

TEST(NvlinkCombine, EveryMixOfTypesRoundsWhereItIsDocumented) {
  const Element types[] = {Element::bfloat16, Element::float16, Element::float32};
  for (const Element input : types) {
    for (const Element output : types) {
      for (const bool wide : {false, true}) {
        for (const bool accumulate : {false, true}) {
          check({.num_ranks = 3,
                 .tokens = {4, 8, 1},
                 .top_k = 4,
                 .hidden = 24,
                 .input = input,
                 .partial = wide ? Element::float32 : input,
                 .output = output,
                 .accumulate = accumulate,
                 .weighted = input != output});
        }
      }
    }
  }
}

TEST(NvlinkCombine, RowsInPartsOfEveryBlockCountAreWhole) {
  for (const std::int64_t hidden : {1024, 1032, 1288, 2056, 512, 136, 8}) {
    const int parts = partial_parts(hidden);
    for (int send_blocks = 1; send_blocks <= parts; send_blocks *= 2) {
      for (int sum_blocks = 1; sum_blocks <= parts; sum_blocks *= 2) {
        check({.num_ranks = 2,
               .tokens = {2, 3},
               .hidden = hidden,
               .grid = 3,
               .send_blocks = send_blocks,
               .sum_blocks = sum_blocks,
               .first_sum_block = sum_blocks % 3,
               .late_flags = send_blocks > sum_blocks},
              std::to_string(hidden));
      }
    }
  }
  check({.num_ranks = 4, .tp_size = 2, .tokens = {3, 5}, .hidden = 1288, .send_blocks = 2, .sum_blocks = 4});
}

/// Blocks that share a row where sources have used so many slots.
i32 blocks_of_row(const std::vector<i32>& received, i32 rank, i32 tp_size, i32 send_blocks, i32 send_rows) {
  const NvlinkCombineSpec spec{
      .hidden = 7168, .num_ranks = static_cast<i32>(received.size()) * tp_size, .tp_size = tp_size, .top_k = 8};
  std::vector<i32> slots = received;
  NvlinkCombineArgs args{};
  args.sends = 1;
  args.send_blocks = send_blocks;
  args.send_rows = send_rows;
  args.shape.max_tokens = 4096;
  args.tables.num_received = slots.data();
  args.tables.source_tokens = slots.data();
  args.window.rank = rank;
  i32 blocks = 0;
  BlockTeam team(1);
  team.run(1, 0, [&](const HostExec& ex) {
    const Runtime<NvlinkCombineSpec> runtime(spec);
    const SourceCounts counts(ex, runtime, args);
    blocks = CombineSends(CombineWorker::block(ex), runtime, args, counts, 1).blocks_of_row();
  });
  return blocks;
}

TEST(NvlinkCombine, RowsOfSourcesWithManyTokensAreSharedByFewerBlocks) {
  EXPECT_EQ(8, blocks_of_row({1, 1, 1, 1}, 0, 1, 8, 3));
  EXPECT_EQ(4, blocks_of_row({1, 1, 1, 2}, 0, 1, 8, 3));
  EXPECT_EQ(8, blocks_of_row({1, 1, 1, 2}, 3, 1, 8, 3)) << "own tokens are not sent";
  EXPECT_EQ(2, blocks_of_row({1, 4, 4, 4}, 0, 1, 8, 3));
  EXPECT_EQ(1, blocks_of_row({1, 700, 5, 1024}, 0, 1, 8, 40));
  EXPECT_EQ(8, blocks_of_row({1, 700, 5, 1024}, 0, 1, 8, 0)) << "no bound";
  EXPECT_EQ(4, blocks_of_row({40, 40}, 0, 2, 8, 40)) << "members send own tokens, too";
}

TEST(NvlinkCombine, SourcesWithManyMoreTokensThanPlannedGetWholeRows) {
  for (const int send_rows : {1, 2, 5}) {
    check({.num_ranks = 3, .tokens = {8, 1, 3}, .hidden = 1288, .grid = 3, .send_blocks = 4, .send_rows = send_rows});
    check({.num_ranks = 4,
           .tp_size = 2,
           .tokens = {8, 1},
           .hidden = 1288,
           .grid = 3,
           .send_blocks = 4,
           .send_rows = send_rows});
  }
}

TEST(NvlinkCombine, RowsThatFoundNoRoomOrArePastTheOutputAddNothingAndAreToldHome) {
  check({.num_ranks = 3, .tokens = {8, 8, 3}, .top_k = 4, .one_in_dropped = 3}, "dropped");
  check({.num_ranks = 4, .tp_size = 2, .tokens = {8, 6}, .top_k = 4, .one_in_dropped = 1}, "all dropped");
  check({.num_ranks = 3, .tokens = {8, 8, 3}, .top_k = 4, .short_output = 9}, "short");
}

TEST(NvlinkCombine, ZeroTokensAnywhereAndTokensPastTheCountAreLeftAlone) {
  check({.num_ranks = 4, .tokens = {5, 0, 3, 0}, .bound_above = 2}, "some without");
  check({.num_ranks = 4, .tokens = {0, 0, 0, 0}, .bound_above = 1}, "all without");
  check({.num_ranks = 4, .tp_size = 4, .tokens = {3}, .bound_above = 2}, "one group");
  check({.num_ranks = 3, .tokens = {8, 8, 8}, .everything_to_rank_0 = true, .grid = 4}, "all at rank 0");
  check({.num_ranks = 5, .tokens = {0, 0, 8, 0, 0}, .num_experts = 3, .grid = 4}, "one source, idle ranks");
}

TEST(NvlinkCombine, ManyRowsPerRankAndManyKEqualTheReference) {
  check({.num_ranks = 2,
         .tokens = {300, 257},
         .max_tokens = 300,
         .num_experts = 40,
         .top_k = 32,
         .hidden = 64,
         .grid = 4});
}

void reuse(CombineCase c, int iterations) {
  CombineRanks ranks(c);
  std::mt19937 draw(3);
  bool failed = false;
  // What dispatch does: nobody begins a combine before all have ended the last one.
  std::barrier together(c.num_ranks, [&]() noexcept {
    if (::testing::Test::HasFatalFailure()) failed = true;
    if (!failed && ranks.rank(0).calls != 0) ranks.expect_outputs("call " + std::to_string(ranks.rank(0).calls));
    for (auto& tokens : c.tokens) tokens = draw() % 3 == 0 ? 0 : draw() % (c.max_tokens + 1);
    c.send_blocks = 1 << draw() % 2;
    c.send_rows = static_cast<int>(draw() % 5);
    c.sum_blocks = 1 << draw() % 2;
    c.first_sum_block = static_cast<int>(draw() % 3);
    c.many = c.tp_size == 1 ? static_cast<unsigned>(draw()) : 0;  // ranks need not run the same
    if (c.many != 0) c.sum_blocks = c.send_blocks;
    c.lag_tokens = static_cast<int>(draw() % 3);
    c.split = static_cast<int>(draw() % 2);
    c.one_in_dropped = static_cast<int>(draw() % 4);
    c.everything_to_rank_0 = draw() % 8 == 0;
    ranks.draw(c, draw());
  });
  on_ranks(c.num_ranks, [&](int r) {
    BlockTeam team(c.grid);
    for (int i = 0; i < iterations; ++i) {
      together.arrive_and_wait();
      if (failed) continue;
      ranks.run(r, team, {.at_entry = 4, .at_barriers = 8, .elsewhere = 256, .most_us = 100});
    }
    together.arrive_and_wait();
  });
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kIterations = 150;
#else
constexpr int kIterations = 2500;
#endif

TEST(NvlinkCombine, ThousandsOfCallsInTheSameMemoryWithDelaysNeverMixEpochs) {
  reuse({.num_ranks = 3, .tokens = {0, 0, 0}, .max_tokens = 5, .num_experts = 7, .hidden = 256}, kIterations);
  reuse({.num_ranks = 4, .tp_size = 2, .tokens = {0, 0}, .max_tokens = 5, .num_experts = 7, .hidden = 256},
        kIterations);
}

// Ranks of different sizes, so that none is where another is; each waits as soon as it may.
void run_apart(CombineRanks& ranks, int num_ranks) {
  on_ranks(num_ranks, [&](int r) {
    BlockTeam team(1 + r % 3);
    ranks.run(r, team);
  });
}

TEST(NvlinkCombine, WarpsThatSumAndSendInTurnsNeverWaitInACircle) {
  for (const int num_ranks : {2, 3, 5}) {
    for (const int lag_tokens : {0, 1, 7}) {
      CombineCase c{.num_ranks = num_ranks, .max_tokens = 200, .num_experts = 11, .hidden = 256};
      for (int r = 0; r < num_ranks; ++r) c.tokens.push_back(200 - 60 * (r % 3));
      c.send_blocks = c.sum_blocks = 2;
      c.many = num_ranks == 5 ? 0b10110 : kEveryRank;
      c.lag_tokens = lag_tokens;
      CombineRanks ranks(c);
      ranks.draw(c, 5);
      run_apart(ranks, num_ranks);
      ranks.expect_outputs(std::to_string(num_ranks) + " ranks, lag " + std::to_string(lag_tokens));
    }
  }
}

TEST(NvlinkCombine, TestsNoticeSumsThatComeBeforeWhatTheyWaitFor) {
  CombineCase c{.num_ranks = 2, .tokens = {20, 20}, .max_tokens = 20, .many = kEveryRank, .lag_tokens = -20};
  CombineRanks ranks(c);
  ranks.timeout_ns = 50'000'000;
  ranks.draw(c, 5);
  run_apart(ranks, 2);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(FaultKind::wait_expired, ranks.rank(r).record.fault.kind) << "rank " << r;
}

TEST(NvlinkCombine, RankThatNeverSendsEndsTheOthersAtTheDeadlineAndIsNamed) {
  for (const int line_tokens : {0, 4}) {
    const CombineCase c{.num_ranks = 3, .tokens = {4, 4, 4}, .num_experts = 3, .line_tokens = line_tokens};
    CombineRanks ranks(c);
    ranks.timeout_ns = 50'000'000;
    ranks.draw(c, 1);
    on_ranks(2, [&](int r) {  // rank 2 stays away
      BlockTeam team(c.grid);
      ranks.run(r, team);
    });
    for (int r = 0; r < 2; ++r) {
      ASSERT_EQ(1U, ranks.rank(r).record.is_complete) << "rank " << r;
      EXPECT_EQ(FaultKind::wait_expired, ranks.rank(r).record.fault.kind);
      EXPECT_EQ(FaultPhase::combine_receive, ranks.rank(r).record.fault.phase);
      EXPECT_EQ(2, ranks.rank(r).record.fault.peer);
    }
  }
}

TEST(NvlinkCombine, LinesAreGoneBeforeTheirTagsComeAgain) {
  const CombineCase c{.num_ranks = 2, .tokens = {3, 2}, .max_tokens = 4, .line_tokens = 4};
  const NvlinkLayout layout = NvlinkLayout::of(c.shape());
  CombineRanks ranks(c);
  for (int r = 0; r < 2; ++r) {
    ranks.rank(r).calls = (u64{1} << 30U) - 2;
    for (int phase = 0; phase < kNvlinkPhases; ++phase) {
      ranks.rank(r).epochs[phase * NvlinkTables::kEpochStride] = ranks.rank(r).calls;
    }
  }
  const auto has_lines = [&](int r) {
    const Vec16* lines = ranks.rank(r).symmetric.data() + layout.line_partials.offset_bytes / 16;
    return std::any_of(lines, lines + layout.line_partials.bytes() / 16,
                       [](const Vec16& v) { return (v.x | v.y | v.z | v.w) != 0; });
  };
  for (const bool expects_lines : {true, false, true}) {  // the epoch in the middle is a multiple of 2^30
    ranks.draw(c, 7);
    on_ranks(2, [&](int r) {
      BlockTeam team(c.grid);
      ranks.run(r, team);
    });
    ranks.expect_outputs("call " + std::to_string(ranks.rank(0).calls));
    for (int r = 0; r < 2; ++r) EXPECT_EQ(expects_lines, has_lines(r)) << "call " << ranks.rank(r).calls;
  }
}

TEST(NvlinkCombine, CallWithoutADispatchIsAFault) {
  const CombineCase c{.num_ranks = 2, .tokens = {1, 1}};
  CombineRanks ranks(c);
  ranks.draw(c, 1);
  for (int r = 0; r < 2; ++r) ranks.rank(r).epochs[3 * NvlinkTables::kEpochStride] = 5;
  on_ranks(2, [&](int r) {
    BlockTeam team(c.grid);
    ranks.run(r, team);
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(FaultKind::out_of_order, ranks.rank(r).record.fault.kind) << "rank " << r;
}

TEST(NvlinkCombine, CombineBehindADispatchThatFailedTouchesNothing) {
  const CombineCase c{.num_ranks = 2, .tokens = {4, 4}};
  CombineRanks ranks(c);
  ranks.draw(c, 1);
  ranks.rank(0).num_received[0] = NvlinkTables::kNoDispatch;
  const std::vector<Vec16> symmetric = ranks.rank(1).symmetric;
  BlockTeam team(c.grid);
  ranks.run(0, team);  // would wait for rank 1
  EXPECT_EQ(0U, ranks.rank(0).fault_word);
  EXPECT_EQ(0, std::memcmp(symmetric.data(), ranks.rank(1).symmetric.data(), symmetric.size() * sizeof(Vec16)));
  EXPECT_EQ(0, std::memcmp(ranks.rank(0).output_before.data(), ranks.rank(0).output.data(),
                           ranks.rank(0).output_before.size()));
}

TEST(NvlinkCombine, PartialsOfAnotherTypeAreAMismatch) {
  for (const int line_tokens : {0, 1}) {  // of lines too many or too few come
    const CombineCase c{.num_ranks = 2, .tokens = {1, 1}, .partial = Element::float32, .line_tokens = line_tokens};
    CombineCase other = c;
    other.partial = Element::bfloat16;
    CombineRanks ranks(c);
    ranks.draw(c, 1);
    CombineRanks::Rank& first = ranks.rank(0);
    on_ranks(2, [&](int r) {
      BlockTeam team(c.grid);
      if (r == 0) {
        ranks.run(r, team);
      } else {
        ranks.run(r, team, {}, other.spec());
      }
    });
    EXPECT_EQ(FaultKind::mismatch, first.record.fault.kind) << line_tokens;
    EXPECT_EQ(1, first.record.fault.peer);
  }
}

}  // namespace
}  // namespace moelink::test
