// The kernels of the local mode on host threads, against the reference: every variant, 1, 2 and more blocks than
// threads where a variant allows it.
#include "kernels/local_case.hpp"
#include "support/fewer.hpp"

namespace moelink::test {
namespace {

constexpr int kTeam = 3;

/// Runs decode, prefill and move on a case; all must give the reference's rows and metadata.
void check_dispatch(const LocalCase& c) {
  BlockTeam team(kTeam);
  struct Run {
    DispatchVariant variant;
    int grid;
    int parts;
    bool every_block_counts = false;
  };
  for (const Run& run : {Run{DispatchVariant::decode, 1, 1}, Run{DispatchVariant::decode, 2, 4},
                         Run{DispatchVariant::decode, 7, 2}, Run{DispatchVariant::prefill, 1, 0},
                         Run{DispatchVariant::prefill, 2, 0}, Run{DispatchVariant::prefill, kTeam, 0},
                         Run{DispatchVariant::prefill, 2, 0, true}, Run{DispatchVariant::prefill, 5, 0, true}}) {
    SCOPED_TRACE(std::string(name_of(run.variant)) + " by " + std::to_string(run.grid) + " blocks, " +
                 std::to_string(run.parts) + " a row");
    LocalRun local(c);
    local.dispatch(run.variant, team, run.grid, run.parts, run.every_block_counts);
    local.expect_routing();
    local.expect_rows();
    EXPECT_EQ(1U, local.phase);

    local.phase = 2;
    local.new_tokens(99);
    local.dispatch(DispatchVariant::move, team, run.grid, run.parts);
    local.expect_routing();
    local.expect_rows();
    EXPECT_EQ(0U, local.status.calls_out_of_order);
    if (testing::Test::HasFatalFailure()) return;
  }
}

LocalCase with_random_ids(LocalCase c, bool with_bad = true) {
  std::mt19937_64 random(static_cast<unsigned long>(c.num_tokens * 31 + c.num_experts));
  c.ids = random_ids(c, random, with_bad);
  return c;
}

TEST(LocalDispatch, TokenCountsAtWarpAndBlockBoundaries) {
  for (const std::int64_t tokens : {0, 1, 2, 31, 32, 33, 127, 128, 129, 1000}) {
    SCOPED_TRACE("T = " + std::to_string(tokens));
    check_dispatch(with_random_ids({.num_tokens = tokens, .num_experts = 16, .top_k = 4, .row_bytes = 48}));
  }
}

TEST(LocalDispatch, ExpertCountsAtBlockBoundaries) {
  for (const std::int64_t experts : {1, 2, 31, 33, 60, 384, 896, 1024, 1025, 16384}) {
    SCOPED_TRACE("E = " + std::to_string(experts));
    check_dispatch(
        with_random_ids({.num_tokens = 37, .num_experts = experts, .top_k = 8, .row_bytes = 32, .alignment = 8}));
  }
}

TEST(LocalDispatch, EveryTopK) {
  for (const int top_k : {1, 2, 3, 5, 6, 7, 8, 10, 16, 22, 31, 32}) {
    SCOPED_TRACE("k = " + std::to_string(top_k));
    check_dispatch(
        with_random_ids({.num_tokens = 19, .num_experts = 40, .top_k = top_k, .row_bytes = 64, .id_bytes = 8}));
  }
}

TEST(LocalDispatch, ManyTokensLargeRowsAreStreamed) {
  check_dispatch(with_random_ids({.num_tokens = 600, .num_experts = 64, .top_k = 4, .row_bytes = 2048 + 16}, false));
}

TEST(LocalDispatch, DuplicateExpertsOfOneTokenGetARowEach) {
  check_dispatch({.num_tokens = 1, .num_experts = 8, .top_k = 2, .row_bytes = 32, .ids = {5, 5}});
  check_dispatch(
      {.num_tokens = 2, .num_experts = 8, .top_k = 3, .row_bytes = 32, .alignment = 4, .ids = {5, 5, 1, 5, 1, 5}});
}

TEST(LocalDispatch, AllEntriesUnusedOrOutOfRangeGiveNoRow) {
  check_dispatch(
      {.num_tokens = 1, .num_experts = 128, .top_k = 8, .row_bytes = 32, .ids = std::vector<std::int64_t>(8, -1)});
  check_dispatch({.num_tokens = 4, .num_experts = 64, .top_k = 1, .row_bytes = 32, .ids = {64, 64, 64, 64}});
}

TEST(LocalDispatch, Int64IdsWhoseLowHalfLooksValidAreOutOfRange) {
  const std::int64_t high = std::int64_t{1} << 32;
  check_dispatch({.num_tokens = 2,
                  .num_experts = 8,
                  .top_k = 3,
                  .row_bytes = 16,
                  .id_bytes = 8,
                  .ids = {high, high + 5, 3, high | 0xffffffff, -high, -1}});
}

TEST(LocalDispatch, AllTokensToOneExpert) {
  check_dispatch(
      {.num_tokens = 500, .num_experts = 32, .top_k = 1, .row_bytes = 32, .ids = std::vector<std::int64_t>(500, 7)});
}

TEST(LocalDispatch, PacksAtEveryAlignment) {
  for (const int alignment : {1, 2, 16, 128}) {
    for (const bool zero_pads : {false, true}) {
      SCOPED_TRACE("alignment " + std::to_string(alignment) + (zero_pads ? ", pads zeroed" : ""));
      check_dispatch(with_random_ids({.num_tokens = 70,
                                      .num_experts = 24,
                                      .top_k = 4,
                                      .row_bytes = 48,
                                      .scale_bytes = 12,
                                      .alignment = alignment,
                                      .zero_pads = zero_pads}));
    }
  }
}

TEST(LocalDispatch, PackedRowsPastTheCapacityAreDroppedInOrder) {
  for (const std::int64_t max_rows : {0, 16, 64, 128, 192}) {
    SCOPED_TRACE("max_rows " + std::to_string(max_rows));
    check_dispatch(with_random_ids({.num_tokens = 100,
                                    .num_experts = 20,
                                    .top_k = 4,
                                    .row_bytes = 32,
                                    .alignment = 16,
                                    .max_rows = max_rows,
                                    .zero_pads = true}));
  }
}

TEST(LocalDispatch, BatchedRowsPastTheCapacityAreDroppedInOrder) {
  for (const std::int64_t max_rows : {0, 1, 5, 31, 200}) {
    SCOPED_TRACE("capacity " + std::to_string(max_rows));
    check_dispatch(with_random_ids({.num_tokens = 100,
                                    .num_experts = 12,
                                    .top_k = 4,
                                    .row_bytes = 32,
                                    .scale_bytes = 16,
                                    .layout = Layout::batched,
                                    .max_rows = max_rows,
                                    .zero_pads = max_rows % 2 == 1}));
  }
}

TEST(LocalDispatch, ScaleBytesOfEverySizeTravel) {
  for (const int scale_bytes : {1, 2, 3, 4, 6, 8, 12, 16, 28, 48, 224}) {
    SCOPED_TRACE("scale bytes " + std::to_string(scale_bytes));
    check_dispatch(with_random_ids({.num_tokens = 33,
                                    .num_experts = 10,
                                    .top_k = 4,
                                    .row_bytes = 32,
                                    .scale_bytes = scale_bytes,
                                    .row_gap_bytes = 16}));
  }
}

TEST(LocalDispatch, WeightsOnInputAreRoundedToTheType) {
  for (const Element element : {Element::bfloat16, Element::float16, Element::float32}) {
    SCOPED_TRACE("element " + std::to_string(static_cast<int>(element)));
    check_dispatch(
        with_random_ids({.num_tokens = 45, .num_experts = 10, .top_k = 4, .row_bytes = 1040, .on_input = element}));
  }
  check_dispatch(with_random_ids(
      {.num_tokens = 700, .num_experts = 10, .top_k = 4, .row_bytes = 2064, .on_input = Element::bfloat16}));
}

TEST(LocalDispatch, WithoutWeightsEveryWeightIsOne) {
  check_dispatch(
      with_random_ids({.num_tokens = 45, .num_experts = 10, .top_k = 4, .row_bytes = 16, .weighted = false}));
}

TEST(LocalDispatch, DeviceSideTokenCountBoundsWhatIsRead) {
  for (const std::int64_t count : {0, 1, 20, 63, 64, 1000}) {
    SCOPED_TRACE("device count " + std::to_string(count));
    check_dispatch(
        with_random_ids({.num_tokens = 64, .num_experts = 10, .top_k = 4, .row_bytes = 32, .device_count = count}));
  }
}

TEST(LocalDispatch, NegativeDeviceSideTokenCountIsZeroAndCounted) {
  BlockTeam team(kTeam);
  for (const DispatchVariant variant : {DispatchVariant::decode, DispatchVariant::prefill}) {
    LocalCase c = with_random_ids({.num_tokens = 8, .num_experts = 4, .top_k = 2, .row_bytes = 16, .device_count = 0});
    LocalRun local(c);
    std::int32_t negative = -5;
    local.args.device_num_tokens = &negative;
    local.dispatch(variant, team, 2);
    EXPECT_EQ(1U, local.status.token_counts_clamped);
    local.status.token_counts_clamped = 0;
    local.expect_routing();
  }
}

TEST(LocalDispatch, RandomShapesMatchTheReference) {
  std::mt19937_64 random(2026);
  for (int round = 0; round < 60 / test::kFewer; ++round) {
    LocalCase c{.num_tokens = static_cast<std::int64_t>(random() % 90),
                .num_experts = 1 + static_cast<std::int64_t>(random() % 70),
                .top_k = 1 + static_cast<int>(random() % 32),
                .row_bytes = 16 * (1 + static_cast<std::int64_t>(random() % 12)),
                .scale_bytes = static_cast<int>(random() % 3 * (random() % 20)),
                .id_bytes = random() % 2 == 0 ? 4 : 8,
                .layout = random() % 2 == 0 ? Layout::packed : Layout::batched,
                .alignment = 1 << random() % 6,
                .weighted = random() % 4 != 0,
                .zero_pads = random() % 2 == 0,
                .row_gap_bytes = static_cast<std::int64_t>(random() % 2 * 32)};
    if (c.layout == Layout::batched) c.alignment = 1;
    if (random() % 3 == 0) c.max_rows = static_cast<std::int64_t>(random() % 40) * c.alignment;
    if (random() % 4 == 0) c.device_count = static_cast<std::int64_t>(random() % 100);
    c.ids = random_ids(c, random, true);
    SCOPED_TRACE("round " + std::to_string(round));
    check_dispatch(c);
    if (HasFailure()) return;
  }
}

TEST(LocalDispatch, CallsOutOfOrderAreCountedAndHarmNothing) {
  BlockTeam team(kTeam);
  LocalRun local(with_random_ids({.num_tokens = 9, .num_experts = 4, .top_k = 2, .row_bytes = 32}, false));
  local.dispatch(DispatchVariant::decode, team, 2);
  local.dispatch(DispatchVariant::prefill, team, 2);  // the combine in between is missing
  EXPECT_EQ(1U, local.status.calls_out_of_order);
  EXPECT_EQ(3U, local.phase);
  local.combine(team, 2, 1, Element::bfloat16, Element::bfloat16, false, true);
  EXPECT_EQ(4U, local.phase);
  local.combine(team, 2, 1, Element::bfloat16, Element::bfloat16, false, true);
  EXPECT_EQ(2U, local.status.calls_out_of_order);
  EXPECT_EQ(6U, local.phase);
  local.expect_routing();
}

TEST(LocalDispatch, ReusedRoutingDoesNotReachPastAnotherCallsRows) {
  BlockTeam team(kTeam);
  const LocalCase large = with_random_ids({.num_tokens = 40, .num_experts = 8, .top_k = 4, .row_bytes = 32}, false);
  LocalRun local(large);
  local.dispatch(DispatchVariant::decode, team, 2);
  Guarded small(10 * 32, kUntouched);
  local.args.rows = small.data();
  local.args.max_rows = 10;
  local.dispatch(DispatchVariant::move, team, 2);
  EXPECT_TRUE(small.intact());
}

void check_combine(const LocalCase& c) {
  BlockTeam team(kTeam);
  constexpr Element kTypes[] = {Element::bfloat16, Element::float16, Element::float32};
  LocalRun local(c);
  local.dispatch(DispatchVariant::prefill, team, 2);
  for (const Element input : kTypes) {
    for (const Element output : kTypes) {
      for (const bool accumulate : {false, true}) {
        const bool weighted = (static_cast<int>(input) + static_cast<int>(output)) % 2 == 0 || accumulate;
        const int grid = 1 + static_cast<int>(input);
        SCOPED_TRACE("types " + std::to_string(static_cast<int>(input)) + " to " +
                     std::to_string(static_cast<int>(output)) + (accumulate ? ", accumulating" : ""));
        local.combine(team, grid, static_cast<int>(output), input, output, accumulate, weighted);
        local.expect_output(input, output, accumulate, weighted);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(LocalCombine, EveryTypePairMatchesTheReferenceBitForBit) {
  for (const int top_k : {1, 2, 4, 7, 8, 22, 32}) {
    SCOPED_TRACE("k = " + std::to_string(top_k));
    check_combine(with_random_ids({.num_tokens = 17, .num_experts = 12, .top_k = top_k, .row_bytes = 2 * 1112}));
  }
}

TEST(LocalCombine, PadsAndDroppedRowsAddNothing) {
  check_combine(with_random_ids(
      {.num_tokens = 33, .num_experts = 6, .top_k = 4, .row_bytes = 32, .alignment = 32, .max_rows = 96}));
  check_combine(with_random_ids(
      {.num_tokens = 33, .num_experts = 6, .top_k = 4, .row_bytes = 32, .layout = Layout::batched, .max_rows = 9}));
}

TEST(LocalCombine, ZeroTokensAndTokensPastTheCountAreLeftAlone) {
  check_combine(with_random_ids({.num_tokens = 0, .num_experts = 6, .top_k = 4, .row_bytes = 32}));
  check_combine(with_random_ids({.num_tokens = 20, .num_experts = 6, .top_k = 4, .row_bytes = 32, .device_count = 7}));
}

TEST(LocalCombine, LargeOutputsAreStreamed) {
  const LocalCase c = with_random_ids({.num_tokens = 600, .num_experts = 6, .top_k = 2, .row_bytes = 2 * 4096}, false);
  BlockTeam team(kTeam);
  LocalRun local(c);
  local.dispatch(DispatchVariant::prefill, team, 3);
  local.combine(team, 3, 1, Element::bfloat16, Element::bfloat16, false, true);
  local.expect_output(Element::bfloat16, Element::bfloat16, false, true);
}

TEST(LocalCombine, RowsPastTheCallsRowsAddNothing) {
  // A snapshot that another call's larger buffer left behind: the row index must not be followed.
  const std::int32_t rows[] = {0, 1 << 30};
  const float weights[] = {1, 1};
  const std::int32_t num_tokens = 1;
  const float in[4] = {1, 2, 3, 4};
  float out[4] = {};
  std::uint64_t phase = 1;
  ExchangeStatus status{};
  const LocalCombineSpec spec{
      .hidden = 4, .top_k = 2, .threads = 1, .input = Element::float32, .output = Element::float32};
  const LocalCombineArgs args{.expert_output = in,
                              .expert_output_stride_bytes = 16,
                              .expert_output_rows = 1,
                              .output = out,
                              .output_stride_bytes = 16,
                              .accumulate = 0,
                              .weighted = 1,
                              .num_tokens = 1,
                              .parts = 1,
                              .num_tokens_snapshot = &num_tokens,
                              .row_of_entry = rows,
                              .weight_of_entry = weights,
                              .phase = &phase,
                              .status = &status};
  LocalCombine::run(HostExec(0, 1, nullptr), Runtime<LocalCombineSpec>(spec), args);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(in[i], out[i]);
}

}  // namespace
}  // namespace moelink::test
