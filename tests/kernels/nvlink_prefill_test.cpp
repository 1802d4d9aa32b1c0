// Dispatch of many tokens over NVLink on host threads, against the reference, bit for bit.
#include "moelink/device/moe/nvlink_prefill.cuh"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "kernels/nvlink_case.hpp"
#include "kernels/nvlink_headers.cuh"
#include "moelink/device/moe/nvlink_decode.cuh"
#include "moelink/protocol/nvlink_prefill_plan.hpp"

namespace moelink::test {
namespace {

constexpr int kTeam = 3;

std::size_t scratch_bytes(const NvlinkConfig& config) {
  return static_cast<std::size_t>(NvlinkPrefillScratch(config.spec(), 0).total);
}

/// How one rank launches: a choice of its own, but for the format within a group.
struct Launch {
  int grid = 2;
  int num_senders = 1;
  int log2_slots_per_flag = 2;
  bool split = false;
  int decode_parts = 0;  ///< not 0: by the kernel for few tokens, which sends rows in so many parts
  Pauses pauses = {};
};

/// Any launch; what members of a group must share follows from `seed` and the group.
Launch random_launch(const NvlinkRank& rank, unsigned seed) {
  std::mt19937 group_random(seed * 31U + static_cast<unsigned>(rank.index / rank.config.tp_size));
  std::mt19937 random(seed * 17U + static_cast<unsigned>(rank.index));
  Launch launch{.grid = 1 + static_cast<int>(random() % kTeam),
                .log2_slots_per_flag = static_cast<int>(group_random() % (PumpScratch::kLog2BatchRows + 1)),
                .split = random() % 4 == 0,
                .pauses = {.at_entry = 4, .at_barriers = 16, .elsewhere = 512, .most_us = 60}};
  launch.num_senders = 1 + static_cast<int>(random() % static_cast<unsigned>(launch.grid));
  return launch;
}

void dispatch(NvlinkRank& rank, const Launch& how) {
  NvlinkDispatchArgs& args = rank.args;
  const NvlinkDispatchSpec spec = rank.config.spec();
  args.format.log2_slots_per_flag = static_cast<u8>(how.log2_slots_per_flag);
  args.local.parts = how.decode_parts;
  for (int half = 0; half < (how.split ? 2 : 1); ++half) {
    args.sends = !how.split || half == 0 ? 1 : 0;
    args.receives = !how.split || half == 1 ? 1 : 0;
    args.num_senders = args.receives != 0 ? how.num_senders : how.grid;
    if (how.decode_parts != 0) {
      const int scratch = NvlinkDecodeScratch(spec, args.local.num_tokens).total;
      rank.launch<NvlinkDecode>(spec, args, how.grid, static_cast<std::size_t>(scratch), how.pauses);
    } else {
      rank.launch<NvlinkPrefill>(spec, args, how.grid, scratch_bytes(rank.config), how.pauses);
    }
  }
}
void combine(NvlinkRank& rank) { rank.launch<CombineHeaders>(rank.config.spec(), rank.args, 1, 0); }

/// Some calls on all ranks, one launched as `how`, then as it comes.
void check(const NvlinkConfig& config, const CallOptions& options, const Launch& how = {}, int calls = 3) {
  NvlinkRanks ranks(config, kTeam);
  ranks.each([&](NvlinkRank& rank) {
    for (unsigned call = 0; call < static_cast<unsigned>(calls) && !testing::Test::HasFatalFailure(); ++call) {
      rank.begin(make_call(config, options, call + 1));
      dispatch(rank, call == 0 ? how : random_launch(rank, call));
      rank.expect_dispatch();
      combine(rank);
    }
  });
}

TEST(NvlinkPrefill, EveryNumberOfRanksAndBlocks) {
  for (const int num_ranks : {1, 2, 3, 4, 8, 17}) {
    for (int grid = 1; grid <= kTeam; ++grid) {
      SCOPED_TRACE(std::to_string(num_ranks) + " ranks, " + std::to_string(grid) + " blocks");
      const NvlinkConfig config{.num_ranks = num_ranks, .num_experts = 20, .top_k = 3, .max_tokens = 70};
      check(config, {}, {.grid = grid, .num_senders = (grid + 1) / 2});
    }
  }
}

TEST(NvlinkPrefill, MembersOfAGroupShareTheSending) {
  for (const auto& [num_ranks, tp_size] : {std::pair{2, 2}, {4, 2}, {4, 4}, {6, 3}, {8, 2}}) {
    for (const bool split : {false, true}) {
      SCOPED_TRACE(std::to_string(num_ranks) + " ranks, tp_size " + std::to_string(tp_size) + (split ? ", split" : ""));
      const NvlinkConfig config{
          .num_ranks = num_ranks, .tp_size = tp_size, .num_experts = 11, .top_k = 4, .max_tokens = 90};
      check(config, {}, {.split = split});
    }
  }
}

TEST(NvlinkPrefill, RanksWithoutTokensDoNotHang) {
  const NvlinkConfig config{.num_ranks = 4, .top_k = 2, .max_tokens = 40};
  check(config, {.tokens_of_source = {5, 0, 3, 0}});
  check(config, {.tokens_of_source = {0, 0, 0, 0}});
  check(config, {.tokens_of_source = {0, 40, 0, 0}}, {.split = true});
}

TEST(NvlinkPrefill, TokensAtTheEdgesOfChunksAndUnits) {
  for (const std::int64_t tokens : {1, 3, 4, 5, 7, 8, 9, 31, 32, 33, 64, 65}) {
    for (const int log2_slots : {0, 1, 3}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens, 2^" + std::to_string(log2_slots) + " slots a flag");
      check({.num_ranks = 2, .num_experts = 2, .top_k = 4, .max_tokens = 65},
            {.tokens_of_source = {tokens, 65 - tokens}}, {.log2_slots_per_flag = log2_slots}, 1);
    }
  }
}

TEST(NvlinkPrefill, TokensOfOneBlockThatExceedWhatIsRankedAtOnce) {
  check({.num_ranks = 2, .num_experts = 9, .top_k = 5, .max_tokens = 900}, {.tokens_of_source = {900, 610}},
        {.grid = 1}, 2);
  check({.num_ranks = 2, .num_experts = 70, .top_k = 32, .max_tokens = 90}, {.tokens_of_source = {90, 33}}, {.grid = 1},
        2);
}

TEST(NvlinkPrefill, EveryKindOfRouting) {
  for (const Routes routes :
       {Routes::uniform, Routes::one_expert, Routes::one_rank, Routes::few, Routes::unused, Routes::with_bad_ids}) {
    SCOPED_TRACE("routes " + std::to_string(static_cast<int>(routes)));
    for (const int max_replicas : {0, 3}) {
      check({.num_ranks = 3, .num_experts = 10, .top_k = 4, .max_tokens = 60},
            {.routes = routes, .max_replicas = max_replicas});
    }
  }
}

TEST(NvlinkPrefill, FewerExpertsThanRanks) {
  check({.num_ranks = 8, .num_experts = 3, .top_k = 2, .max_tokens = 50}, {.alignment = 8, .zero_pads = true});
}

TEST(NvlinkPrefill, RowsPastTheCapacityAreDroppedInOrder) {
  for (const Layout layout : {Layout::packed, Layout::batched}) {
    for (const std::int64_t capacity : {0, 8, 64, 104}) {
      SCOPED_TRACE((layout == Layout::packed ? "packed, " : "batched, ") + std::to_string(capacity) + " rows");
      check({.num_ranks = 3, .num_experts = 8, .top_k = 3, .max_tokens = 60},
            {.layout = layout, .alignment = 8, .capacity = capacity, .zero_pads = capacity != 64});
    }
  }
}

TEST(NvlinkPrefill, ScaleBytesOfEverySizeTravel) {
  for (const int scale_bytes : {1, 2, 6, 16, 28, 63, 224}) {
    SCOPED_TRACE("scale bytes " + std::to_string(scale_bytes));
    check({.num_ranks = 2, .top_k = 4, .max_tokens = 40, .row_bytes = 48, .scale_bytes = scale_bytes},
          {.alignment = 4, .zero_pads = true, .row_gap_bytes = 16});
  }
}

TEST(NvlinkPrefill, WeightsOnInputMultiplyWhatIsPlacedNotWhatTravels) {
  for (const Element element : {Element::bfloat16, Element::float16, Element::float32}) {
    SCOPED_TRACE("element " + std::to_string(static_cast<int>(element)));
    check({.num_ranks = 3, .top_k = 4, .max_tokens = 40, .row_bytes = 1040, .scale_bytes = 6, .on_input = element}, {});
  }
}

TEST(NvlinkPrefill, LargeCallsAreStreamed) {
  check({.num_ranks = 2, .top_k = 4, .max_tokens = 600, .row_bytes = 2064}, {.tokens_of_source = {600, 580}}, {}, 2);
}

TEST(NvlinkPrefill, ReusedRoutingMovesOtherTokensToTheSamePlaces) {
  for (const int tp_size : {1, 2}) {
    const NvlinkConfig config{
        .num_ranks = 4, .tp_size = tp_size, .num_experts = 9, .top_k = 3, .max_tokens = 50, .scale_bytes = 12};
    NvlinkRanks ranks(config, kTeam);
    ranks.each([&](NvlinkRank& rank) {
      for (unsigned call = 0; call < 24 && !testing::Test::HasFatalFailure(); ++call) {
        const NvlinkCall next = make_call(config, random_options(config, call / 4), call / 4);
        if (call % 4 == 0) {
          rank.begin(next);
        } else {
          NvlinkCall other = next;
          for (auto& tokens : other.tokens) {
            for (auto& byte : tokens) byte = static_cast<unsigned char>(byte + call);
          }
          rank.begin_reuse(other);
        }
        dispatch(rank, random_launch(rank, call));
        rank.expect_dispatch();
        combine(rank);
      }
    });
  }
}

/// Calls of every kind, one after the other in the same memory.
void check_reuse_of_memory(const NvlinkConfig& config, unsigned calls) {
  NvlinkRanks ranks(config, kTeam);
  ranks.each([&](NvlinkRank& rank) {
    for (unsigned call = 0; call < calls && !testing::Test::HasFailure(); ++call) {
      rank.begin(make_call(config, random_options(config, call), call));
      dispatch(rank, random_launch(rank, call));
      rank.expect_dispatch();
      combine(rank);
    }
  });
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr unsigned kCalls = 150;
#else
constexpr unsigned kCalls = 1200;
#endif

/// Each group, in each call, by the kernel for many tokens or by the one for few, in parts.
Launch random_kernel(const NvlinkRank& rank, unsigned seed) {
  Launch launch = random_launch(rank, seed);
  const unsigned group = static_cast<unsigned>(rank.index / rank.config.tp_size);
  if ((group + seed) % 2 == 0) launch.decode_parts = 1 << (group + seed / 2) % 4;
  return launch;
}

TEST(NvlinkPrefill, ReadsTheFormatOfSourcesWithFewTokensAndTheyReadIts) {
  for (const int tp_size : {1, 2}) {
    const NvlinkConfig config{.num_ranks = 4,
                              .tp_size = tp_size,
                              .num_experts = 9,
                              .top_k = 3,
                              .max_tokens = 30,
                              .row_bytes = 256,
                              .scale_bytes = 12};
    NvlinkRanks ranks(config, kTeam);
    ranks.each([&](NvlinkRank& rank) {
      for (unsigned call = 0; call < kCalls / 4 && !testing::Test::HasFailure(); ++call) {
        NvlinkCall next = make_call(config, random_options(config, call / 3), call / 3);
        if (call % 3 == 0) {
          rank.begin(next);
        } else {
          for (auto& tokens : next.tokens) std::reverse(tokens.begin(), tokens.end());
          rank.begin_reuse(next);
        }
        dispatch(rank, random_kernel(rank, call));
        rank.expect_dispatch();
        combine(rank);
      }
    });
  }
}

TEST(NvlinkPrefill, RegionsAreReusedOverManyCallsOfTwoRanks) {
  check_reuse_of_memory({.num_ranks = 2, .num_experts = 6, .top_k = 3, .max_tokens = 40, .row_bytes = 64}, kCalls);
}
TEST(NvlinkPrefill, RegionsAreReusedOverManyCallsOfFiveRanks) {
  check_reuse_of_memory(
      {.num_ranks = 5, .num_experts = 12, .top_k = 4, .max_tokens = 33, .row_bytes = 48, .scale_bytes = 16},
      kCalls / 2);
}
TEST(NvlinkPrefill, RegionsAreReusedOverManyCallsOfGroups) {
  check_reuse_of_memory({.num_ranks = 6, .tp_size = 2, .num_experts = 13, .top_k = 4, .max_tokens = 33}, kCalls / 2);
}

TEST(NvlinkPrefill, ARankThatDoesNotComeIsAFaultThatNamesIt) {
  const NvlinkConfig config{.num_ranks = 3, .top_k = 2, .max_tokens = 20, .timeout_ns = 1'000'000'000};
  for (const bool sends_first : {false, true}) {
    NvlinkRanks ranks(config, kTeam);
    ranks.each([&](NvlinkRank& rank) {
      rank.begin(make_call(config, {.tokens_of_source = {20, 20, 20}}, 1));
      if (rank.index == 1) {
        if (!sends_first) return;
        rank.args.num_senders = 3;  // one block of three that send: headers come, most rows do not
        rank.args.receives = 0;
        rank.args.local.grid_barrier = nullptr;
        rank.launch<NvlinkPrefill>(config.spec(), rank.args, 1, scratch_bytes(config));
        return;
      }
      dispatch(rank, {});
    });
    for (const int r : {0, 2}) {
      const FaultWord fault = FaultWord::unpacked(ranks[r].fault_word);
      EXPECT_TRUE(fault.kind == FaultKind::wait_expired || fault.kind == FaultKind::peer_fault);
      EXPECT_EQ(FaultPhase::dispatch_receive, fault.phase);
      EXPECT_EQ(1, fault.peer);
      // The block that publishes may have ended before another met the fault: only the fault word is sure to say so.
    }
  }
}

}  // namespace
}  // namespace moelink::test
