// Ids as codes and as counters: one judgement, two forms. Prefill counts by one and takes rows by the other.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "moelink/device/primitives/expert_code.cuh"

namespace moelink::test {
namespace {

/// The counter of a code: an expert's own, then ids out of range, then skipped ones.
u32 counter_of_code(u16 code, i32 num_experts) {
  const auto experts = static_cast<u32>(num_experts);
  return code == kSkippedCode ? experts + 1 : code == kOutOfRangeCode ? experts : code;
}

void expect_same(IdWords id, i32 num_experts, std::int64_t value) {
  EXPECT_EQ(counter_of_code(id.code(num_experts), num_experts), id.counter(static_cast<u32>(num_experts))) << value;
  for (const i32 first : {0, 1, 3, num_experts - 1}) {
    for (const i32 num_here : {1, 4, num_experts - first}) {
      if (first + num_here > num_experts) continue;
      EXPECT_EQ(counter_of_code(id.code(num_experts, first, num_here), num_here),
                id.counter(static_cast<u32>(num_experts), static_cast<u32>(first), static_cast<u32>(num_here)))
          << value << " of experts " << first << " to " << first + num_here;
    }
  }
}

TEST(ExpertCode, CountersAndCodesJudgeEveryIdAlike) {
  constexpr i32 kExperts = 8;
  const std::vector<std::int64_t> ids = {-1,
                                         -2,
                                         0,
                                         1,
                                         3,
                                         6,
                                         7,
                                         8,
                                         9,
                                         0x7fffffff,
                                         -0x7fffffffLL - 1,
                                         0xffffffffLL,
                                         0x100000000LL,
                                         0x100000003LL,
                                         -0x100000000LL,
                                         -0xfffffffdLL,
                                         INT64_MAX,
                                         INT64_MIN};
  for (const std::int64_t id : ids) {
    expect_same(load_id(&id, 8, 0), kExperts, id);
    const auto narrow = static_cast<std::int32_t>(id);
    expect_same(load_id(&narrow, 4, 0), kExperts, narrow);
  }
}

TEST(ExpertCode, BatchesGiveWhatSingleLoadsGive) {
  const std::vector<std::int64_t> wide = {5, -1, 0x100000002LL, 7, -3, 2};
  const std::vector<std::int32_t> narrow = {5, -1, INT32_MIN, 7, -3, 2};
  IdBatch<4> batch;
  batch.load(wide.data(), 8, 1, 2, 6);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(load_id(wide.data(), 8, 1 + i * 2).code(8), batch.get(i, 8).code(8)) << i;
  batch.load(narrow.data(), 4, 0, 1, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_id(narrow.data(), 4, i).code(8), batch.get(i, 4).code(8)) << i;
}

}  // namespace
}  // namespace moelink::test
