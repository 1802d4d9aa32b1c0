// The dispatch kernels of the nvlink mode on host threads: ranks in one process, nothing keeping them in step but the
// kernels themselves, against the reference. MOELINK_TEST_SOAK=<n> makes the long run n times as long.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "kernels/nvlink_case.hpp"
#include "kernels/nvlink_headers.cuh"
#include "moelink/device/moe/nvlink_decode.cuh"
#include "moelink/protocol/nvlink_prefill_plan.hpp"

namespace moelink::test {
namespace {

constexpr Pauses kRarely{.at_entry = 8, .at_barriers = 16, .elsewhere = 512, .most_us = 100};

/// How one rank runs its launches.
struct Run {
  int grid = 1;
  int parts = 1;
  bool split = false;
  bool late_flags = false;
  Pauses pauses = {};
};

void dispatch(NvlinkRank& rank, const Run& run) {
  const NvlinkDispatchSpec spec = rank.config.spec();
  rank.args.local.parts = run.parts;
  const int scratch = NvlinkDecodeScratch(spec, rank.args.local.num_tokens).total;
  for (int phase = 0; phase < (run.split ? 2 : 1); ++phase) {
    rank.args.late_flags = run.late_flags ? 1 : 0;
    rank.args.sends = !run.split || phase == 0 ? 1 : 0;
    rank.args.receives = !run.split || phase == 1 ? 1 : 0;
    rank.launch<NvlinkDecode>(spec, rank.args, run.grid, static_cast<std::size_t>(scratch), run.pauses);
  }
}

void combine(NvlinkRank& rank, const Run& run) {
  rank.launch<CombineHeaders>(rank.config.spec(), rank.args, 1, 0, run.pauses);
}

/// Every rank another grid, every group another number of parts.
Run run_of(const NvlinkRank& rank, unsigned call, const Pauses& pauses) {
  const unsigned mixed = (static_cast<unsigned>(rank.index) * 5 + call * 3) % 7;
  const unsigned group = static_cast<unsigned>(rank.index / rank.config.tp_size);
  return {.grid = 1 + static_cast<int>(mixed % 3),
          .parts = 1 << (group + call) % 4,
          .split = mixed == 6,
          .late_flags = mixed % 2 != 0,
          .pauses = pauses};
}

/// `num_calls` calls, of options that `options_of(call)` gives; after each, every fourth is repeated with its routing.
void check(const NvlinkConfig& config, int num_calls, const std::function<CallOptions(unsigned)>& options_of,
           const Pauses& pauses = {}) {
  NvlinkRanks ranks(config, 3);
  ranks.each([&](NvlinkRank& rank) {
    for (unsigned call = 0; call < static_cast<unsigned>(num_calls); ++call) {
      SCOPED_TRACE("call " + std::to_string(call));
      const CallOptions options = options_of(call);
      rank.begin(make_call(config, options, call));
      dispatch(rank, run_of(rank, call, pauses));
      rank.expect_dispatch();
      combine(rank, run_of(rank, call, pauses));
      if (call % 4 == 3) {
        // As many tokens, other rows.
        NvlinkCall again = make_call(config, options, call);
        for (auto& source : again.tokens) std::reverse(source.begin(), source.end());
        for (auto& source : again.scales) std::reverse(source.begin(), source.end());
        rank.begin_reuse(again);
        dispatch(rank, run_of(rank, call + 1, pauses));
        rank.expect_dispatch();
        combine(rank, run_of(rank, call + 1, pauses));
      }
      if (testing::Test::HasFailure()) return;  // other ranks run into their deadline, or go on
    }
  });
}

std::function<CallOptions(unsigned)> always(const CallOptions& options) {
  return [options](unsigned) { return options; };
}

TEST(NvlinkDispatch, EveryNumberOfRanksAndGroups) {
  struct Ranks {
    int num_ranks;
    int tp_size;
  };
  for (const Ranks& ranks : {Ranks{1, 1}, Ranks{2, 1}, Ranks{2, 2}, Ranks{3, 1}, Ranks{4, 1}, Ranks{4, 2}, Ranks{6, 3},
                             Ranks{8, 1}, Ranks{8, 2}, Ranks{16, 1}, Ranks{18, 1}}) {
    SCOPED_TRACE(std::to_string(ranks.num_ranks) + " ranks, tp_size " + std::to_string(ranks.tp_size));
    const NvlinkConfig config{.num_ranks = ranks.num_ranks,
                              .tp_size = ranks.tp_size,
                              .num_experts = 20,
                              .top_k = 4,
                              .max_tokens = 9,
                              .row_bytes = 48,
                              .scale_bytes = 12,
                              .timeout_ns = 20'000'000'000};
    check(config, 12, [&](unsigned call) { return random_options(config, call); });
    if (HasFailure()) return;
  }
}

constexpr NvlinkConfig kFour{
    .num_ranks = 4, .num_experts = 12, .top_k = 3, .max_tokens = 20, .row_bytes = 64, .timeout_ns = 20'000'000'000};

TEST(NvlinkDispatch, EveryKindOfRouting) {
  for (const Routes routes :
       {Routes::uniform, Routes::one_expert, Routes::one_rank, Routes::few, Routes::unused, Routes::with_bad_ids}) {
    SCOPED_TRACE("routes " + std::to_string(static_cast<int>(routes)));
    check(kFour, 4, always({.routes = routes, .alignment = 4}));
  }
}

TEST(NvlinkDispatch, ZeroTokensOnSomeRanksOrAllDoNotHang) {
  check(kFour, 8, [](unsigned call) {
    CallOptions options{.alignment = 2};
    for (unsigned source = 0; source < 4; ++source) options.tokens_of_source.push_back(call >> source & 1U ? 0 : 7);
    return options;
  });
  check(kFour, 4, always({.tokens_of_source = {0, 0, 0, 0}, .alignment = 8, .zero_pads = true}));
  check(kFour, 4, always({.tokens_of_source = {5, 0, 3, 0}}));
}

TEST(NvlinkDispatch, RanksPastTheFirstWordOfATokensMask) {
  const NvlinkConfig config{
      .num_ranks = 35, .num_experts = 70, .top_k = 6, .max_tokens = 5, .row_bytes = 32, .timeout_ns = 20'000'000'000};
  check(config, 4, [&](unsigned call) { return random_options(config, call); });
}

TEST(NvlinkDispatch, AsManyTokensAsAGpuMayAskItFor) {
  constexpr std::int64_t kMost = kGpuPrefillTuning.few_short_entries / 8;
  const NvlinkConfig config{.num_ranks = 2,
                            .num_experts = 128,
                            .top_k = 8,
                            .max_tokens = kMost,
                            .row_bytes = 32,
                            .timeout_ns = 20'000'000'000};
  for (const Routes routes : {Routes::uniform, Routes::one_expert, Routes::with_bad_ids}) {
    check(config, 2, always({.routes = routes, .tokens_of_source = {kMost, kMost - 1}, .alignment = 4}));
  }
}

TEST(NvlinkDispatch, FewerExpertsThanRanksAndUnevenOnes) {
  for (const std::int64_t experts : {1, 2, 3, 5, 7, 13}) {
    SCOPED_TRACE(std::to_string(experts) + " experts");
    NvlinkConfig config = kFour;
    config.num_ranks = 5;
    config.num_experts = experts;
    check(config, 4, [&](unsigned call) { return random_options(config, call + 50); });
  }
}

TEST(NvlinkDispatch, EveryTopK) {
  for (const int top_k : {1, 2, 5, 8, 22, 32}) {
    SCOPED_TRACE("k = " + std::to_string(top_k));
    NvlinkConfig config = kFour;
    config.num_ranks = 2;
    config.num_experts = 40;
    config.top_k = top_k;
    check(config, 4, always({.alignment = 4, .id_bytes = 8}));
  }
}

TEST(NvlinkDispatch, RowsPastTheCapacityAreDroppedInOrderAndLaterCallsAreRight) {
  for (const Layout layout : {Layout::packed, Layout::batched}) {
    check(kFour, 12, [&](unsigned call) {
      const std::int64_t most = layout == Layout::packed ? 48 : 12;
      return CallOptions{.tokens_of_source = {20, 13, 20, 1},
                         .layout = layout,
                         .alignment = 4,
                         .capacity = call % 3 == 2 ? -1 : call * 4 % most,
                         .zero_pads = call % 2 == 0};
    });
  }
}

TEST(NvlinkDispatch, ScalesOfEverySizeAndWeightsOnInput) {
  for (const int scale_bytes : {1, 4, 6, 16, 56}) {
    NvlinkConfig config = kFour;
    config.scale_bytes = scale_bytes;
    check(config, 4, always({.row_gap_bytes = 16}));
  }
  for (const Element element : {Element::bfloat16, Element::float16, Element::float32}) {
    NvlinkConfig config = kFour;
    config.on_input = element;
    check(config, 4, always({}));
  }
}

TEST(NvlinkDispatch, ReplicasAreChosenByGroupAndToken) {
  NvlinkConfig config = kFour;
  config.tp_size = 2;
  check(config, 8, always({.routes = Routes::with_bad_ids, .max_replicas = 3}));
}

TEST(NvlinkDispatch, DeviceSideTokenCounts) { check(kFour, 8, always({.device_count = true})); }

TEST(NvlinkDispatch, RanksWithDifferentPayloadsOrReuseGiveAFaultThatNamesThem) {
  NvlinkConfig config = kFour;
  config.num_ranks = 2;
  NvlinkRanks ranks(config, 2);
  ranks.each([&](NvlinkRank& rank) {
    const NvlinkCall call = make_call(config, {}, 1);
    rank.begin(call);
    dispatch(rank, {.grid = 2});
    combine(rank, {});
    if (rank.index == 1) {
      rank.begin_reuse(call);
    } else {
      rank.begin(call);
    }
    dispatch(rank, {.grid = 2});
    EXPECT_EQ(FaultKind::mismatch, FaultWord::unpacked(rank.fault()).kind);
    EXPECT_EQ(0, rank.args.local.offsets[6]) << "nothing must be announced to whoever runs next";
    EXPECT_EQ(1U, rank.args.tables.epochs[NvlinkTables::kEpochStride]) << "a dispatch with a fault was completed";
  });
}

TEST(NvlinkDispatch, AMissingRankEndsTheWaitsOfTheOthers) {
  NvlinkConfig config = kFour;
  config.timeout_ns = 200'000'000;
  NvlinkRanks ranks(config, 2);
  ranks.each([&](NvlinkRank& rank) {
    rank.begin(make_call(config, {}, 1));
    if (rank.index == 2) return;
    dispatch(rank, {.grid = 2, .parts = 2});
    EXPECT_NE(0U, rank.fault());
    EXPECT_EQ(2, FaultWord::unpacked(rank.fault()).peer);
  });
}

TEST(NvlinkDispatch, ReusedForALongTimeWithPausesAnywhere) {
  const char* soak = std::getenv("MOELINK_TEST_SOAK");
  const int num_calls = 300 * (soak == nullptr ? 1 : std::max(std::atoi(soak), 1));
  for (const int tp_size : {1, 2}) {
    NvlinkConfig config = kFour;
    config.tp_size = tp_size;
    config.max_tokens = 6;
    config.row_bytes = 32;
    check(
        config, num_calls, [&](unsigned call) { return random_options(config, call); }, kRarely);
  }
}

}  // namespace
}  // namespace moelink::test
