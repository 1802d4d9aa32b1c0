// Arithmetic that kernels and hosts of all ranks must agree on, in 32 bits where it was meant in 64.
#include <gtest/gtest.h>

#include <vector>

#include "moelink/protocol/nvlink_combine_plan.hpp"
#include "moelink/protocol/nvlink_scratch.hpp"

namespace moelink {
namespace {

TEST(NvlinkShape, OwnersOfTheMostExpertsOnTheMostRanksDoNotOverflow) {
  constexpr i32 kMostRanks = 65536;  // of a launcher (src/comm)
  for (const i32 ranks : {1, 2, 3, 7, 8, 64, 72, 1023, 16384, kMostRanks - 1, kMostRanks}) {
    for (const i32 experts : {1, 2, 255, 256, 16383, kMaxExperts}) {
      for (i32 rank = 0; rank <= ranks; rank += ranks > 1000 ? 37 : 1) {
        ASSERT_EQ(i64{rank} * experts / ranks, first_expert_of(rank, experts, ranks)) << ranks << " " << experts;
      }
      ASSERT_EQ(experts, first_expert_of(ranks, experts, ranks));
      for (i32 expert = 0; expert < experts; ++expert) {
        const i32 owner = owner_of_expert(expert, experts, ranks);
        ASSERT_LE(first_expert_of(owner, experts, ranks), expert) << experts << " experts of " << ranks << " ranks";
        ASSERT_LT(expert, first_expert_of(owner + 1, experts, ranks)) << experts << " experts of " << ranks << " ranks";
      }
    }
  }
}

// A sender cuts by shifts, a plan by a division.
TEST(NvlinkShape, PartsAreAsLongWhoeverWorksThemOut) {
  for (i32 log2 = 0; 1 << log2 <= kMaxWireParts; ++log2) {
    for (i64 bytes = 16; bytes <= 1 << 16; bytes += 16) {
      ASSERT_EQ(wire_part_bytes(bytes, 1 << log2), wire_part_bytes_log2(bytes, log2)) << bytes;
    }
  }
}

// With an empty part a block would not come to the flags of what it sent before.
TEST(NvlinkShape, NoPartOfAPartialRowIsEmpty) {
  for (i64 hidden = 4; hidden <= 1 << 14; hidden += 4) {
    const i64 units = ceil_div(hidden, kPartialUnit);
    const i64 units_of_part = ceil_div(units, i64{partial_parts(hidden)});
    ASSERT_LT((partial_parts(hidden) - 1) * units_of_part, units) << hidden;
  }
}

/// All offsets, the total last.
std::vector<i32> offsets_of(const NvlinkDecodeScratch& at) {
  return {at.counts, at.ranks,   at.slots, at.items, at.rows, at.weights,
          at.sum,    at.sources, at.codes, at.masks, at.total};
}

TEST(NvlinkShape, ScratchIsReadBySixteenBytesAndNothingOverlaps) {
  for (const i32 ranks : {1, 2, 3, 5, 8, 33, 72}) {
    for (const i32 experts : {1, 5, 13, 128, 255, 257}) {
      for (const i32 top_k : {1, 3, 8, 10, kMaxTopK}) {
        const NvlinkDispatchSpec spec{.num_ranks = ranks, .num_experts = experts, .top_k = top_k};
        for (const i32 tokens : {0, 1, 3, 128}) {
          const NvlinkDecodeScratch at(spec, tokens);
          const SourceScratch sources(spec, at.sources);
          const std::vector<i32> offsets = offsets_of(at);
          for (std::size_t i = 0; i < offsets.size(); ++i) {
            ASSERT_EQ(0, offsets[i] % 16) << i;
            ASSERT_LE(i == 0 ? 0 : offsets[i - 1], offsets[i]) << i;
          }
          ASSERT_LE(at.counts + experts * 4, at.ranks);
          ASSERT_LE(at.slots + ranks * 4, at.items);
          ASSERT_LE(at.items + (ranks + 1) * 4, at.rows);
          ASSERT_EQ(sources.total, at.codes);
          ASSERT_EQ(0, sources.rows % 16);
          ASSERT_EQ(0, SourceScratch::row_stride(spec) % 4);
          ASSERT_LE(sources.rows + (ranks + 1) * SourceScratch::row_stride(spec) * 4, sources.sum);
          ASSERT_LE(at.codes + tokens * top_k * 2, at.masks);
          ASSERT_LE(at.masks + NvlinkDecodeScratch::mask_words(spec) * tokens * 4, at.total);
        }
      }
    }
  }
}

TEST(NvlinkShape, TeamsOfCombineHaveScratchOfTheirOwn) {
  for (const i32 ranks : {1, 2, 3, 8, 33, 72}) {
    for (const i32 threads : {1, kCombineTeamThreads, 3 * kCombineTeamThreads}) {
      for (const i64 hidden : {8, 136, 2880, 7168, 131072}) {
        const NvlinkCombineSpec spec{.hidden = hidden, .num_ranks = ranks, .top_k = 8, .threads = threads};
        const CombineTeamScratch at(spec);
        ASSERT_EQ(0, at.held_bytes % 16);
        ASSERT_EQ(0, at.slots % 16);
        ASSERT_EQ(0, at.total % 16);
        ASSERT_LE(CombineTeamScratch::kWordBytes + at.held_bytes, at.slots);
        ASSERT_LE(at.slots + kCombineTeamThreads / 32 * ranks * 4, at.total);
      }
    }
  }
}

}  // namespace
}  // namespace moelink
