// What every nvlink kernel rests on: epochs, headers and the places that follow from them.
#include "kernels/nvlink_headers.cuh"

#include "kernels/nvlink_case.hpp"

namespace moelink::test {
namespace {

constexpr Pauses kPauses{.at_entry = 4, .at_barriers = 4, .elsewhere = 64, .most_us = 50};

std::size_t scratch_bytes(const NvlinkConfig& config) {
  return static_cast<std::size_t>(SourceScratch(config.spec(), 0).total);
}

NvlinkCall no_tokens(const NvlinkConfig& config) {
  CallOptions options;
  options.tokens_of_source.assign(static_cast<std::size_t>(config.num_groups()), 0);
  options.alignment = 4;
  return make_call(config, options, 1);
}

/// One dispatch of headers with `slots` slots and `hash`.
void dispatch(NvlinkRank& rank, int slots, int hash = 0) {
  rank.args.local.num_tokens = slots;
  rank.args.num_senders = hash;
  rank.launch<DispatchHeaders>(rank.config.spec(), rank.args, 3, scratch_bytes(rank.config), kPauses);
}
void combine(NvlinkRank& rank) { rank.launch<CombineHeaders>(rank.config.spec(), rank.args, 2, 0, kPauses); }

FaultKind kind_of(const NvlinkRank& rank) { return FaultWord::unpacked(rank.fault_word).kind; }

TEST(NvlinkHeaders, PlacesFollowFromTheCountsOfAllSources) {
  struct Shape {
    int num_ranks;
    int tp_size;
    std::int64_t num_experts;
  };
  for (const Shape& shape : {Shape{1, 1, 5}, Shape{2, 1, 7}, Shape{3, 1, 2}, Shape{4, 2, 10}, Shape{4, 4, 3},
                             Shape{8, 1, 20}, Shape{18, 1, 40}}) {
    const NvlinkConfig config{.num_ranks = shape.num_ranks,
                              .tp_size = shape.tp_size,
                              .num_experts = shape.num_experts,
                              .top_k = 8,
                              .max_tokens = 64};
    SCOPED_TRACE(std::to_string(config.num_ranks) + " ranks, tp_size " + std::to_string(config.tp_size));
    NvlinkRanks ranks(config, 3);
    ranks.each([&](NvlinkRank& rank) {
      rank.begin(no_tokens(config));
      for (int call = 0; call < 20; ++call) {
        dispatch(rank, 0);
        combine(rank);
      }
    });
    for (int r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(20U, ranks[r].args.tables.epochs[3 * NvlinkTables::kEpochStride]);
      std::int64_t row = 0;
      const NvlinkCall& call = ranks[r].call;
      for (std::int64_t expert = call.in.first_expert(r); expert < call.in.first_expert(r + 1); ++expert) {
        const std::int64_t local = expert - call.in.first_expert(r);
        std::int64_t count = 0;
        for (int source = 0; source < config.num_groups(); ++source) count += source + expert + 1;
        EXPECT_EQ(row, ranks[r].args.local.offsets[local]);
        EXPECT_EQ(count, ranks[r].args.local.counts[local]);
        row += (count + 3) / 4 * 4;
      }
      EXPECT_EQ(row, ranks[r].args.local.offsets[call.in.first_expert(r + 1) - call.in.first_expert(r)]);
    }
  }
}

/// Two ranks on one node, and on two.
const std::vector<int> kNodesOfTwo[] = {{}, {0, 1}};

TEST(NvlinkHeaders, CountsThatCannotBeAreClampedAndCounted) {
  for (const std::vector<int>& nodes : kNodesOfTwo) {
    const NvlinkConfig config{.max_tokens = 4, .nodes = nodes};
    NvlinkRanks ranks(config, 3);
    ranks.each([&](NvlinkRank& rank) {
      rank.begin(no_tokens(config));
      dispatch(rank, rank.index == 0 ? 5 : 0);
    });
    for (int r = 0; r < 2; ++r) EXPECT_LT(0U, ranks[r].status.peer_counts_clamped);
  }
}

TEST(NvlinkHeaders, CallsOutOfOrderAreAFaultOnAllRanks) {
  const NvlinkConfig config{.num_ranks = 3};
  NvlinkRanks ranks(config, 2);
  ranks.each([&](NvlinkRank& rank) {
    rank.begin(no_tokens(config));
    dispatch(rank, 0);
    if (rank.index != 1) combine(rank);
    if (rank.index == 1) dispatch(rank, 0);  // the combine in between is missing
  });
  EXPECT_EQ(FaultKind::out_of_order, kind_of(ranks[1]));
  EXPECT_EQ(FaultKind::peer_fault, kind_of(ranks[0]));
  EXPECT_EQ(1U, ranks[1].fault_record.seen);
  EXPECT_EQ(0U, ranks[1].fault_record.expected);
}

TEST(NvlinkHeaders, AMemberOfAGroupWithOtherTokensIsNamed) {
  const NvlinkConfig config{.num_ranks = 4, .tp_size = 2};
  NvlinkRanks ranks(config, 2);
  ranks.each([&](NvlinkRank& rank) {
    rank.begin(no_tokens(config));
    dispatch(rank, 0, rank.index == 3 ? 17 : 5);
  });
  bool named = false;
  for (int r = 0; r < 4; ++r) {
    EXPECT_NE(FaultKind::none, kind_of(ranks[r]));
    const FaultWord word = FaultWord::unpacked(ranks[r].fault_word);
    if (word.kind != FaultKind::mismatch) continue;
    named = true;
    // Whoever notices first names a member of the group that differs from what it goes by: rank 3 names rank 2.
    EXPECT_EQ(word.rank == 3 ? 2 : 3, word.peer);
    if (word.rank != r) continue;
    EXPECT_EQ(word.rank == 3 ? 17U : 5U, ranks[r].fault_record.expected);
    EXPECT_EQ(word.rank == 3 ? 5U : 17U, ranks[r].fault_record.seen);
  }
  EXPECT_TRUE(named);
}

TEST(NvlinkHeaders, AnotherPayloadOrImpossibleFormatIsAFault) {
  using Spoil = void (*)(WireFormat&);
  constexpr Spoil kPayload = [](WireFormat& format) { format.payload = 1; };
  constexpr Spoil kParts = [](WireFormat& format) { format.parts = 3; };
  constexpr Spoil kShift = [](WireFormat& format) { format.log2_slots_per_flag = 31; };
  constexpr Spoil kChunk = [](WireFormat& format) { format.log2_slots_per_flag = 1; };  // that remotes do not have
  for (const std::vector<int>& nodes : kNodesOfTwo) {
    for (const Spoil spoil : {kPayload, kParts, kShift, kChunk}) {
      if (spoil == kChunk && nodes.empty()) continue;
      const NvlinkConfig config{.num_ranks = 2, .nodes = nodes};
      NvlinkRanks ranks(config, 3);
      ranks.each([&](NvlinkRank& rank) {
        rank.begin(no_tokens(config));
        if (rank.index == 1) spoil(rank.args.format);
        dispatch(rank, 0);
      });
      EXPECT_NE(FaultKind::none, kind_of(ranks[0]));
      EXPECT_TRUE(kind_of(ranks[0]) == FaultKind::mismatch || kind_of(ranks[1]) == FaultKind::mismatch);
    }
  }
}

}  // namespace
}  // namespace moelink::test
