#include "moelink/protocol/carver.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace moelink {
namespace {

struct Layout {
  Place<i64> offsets;
  Place<float> nothing;
  Place<u8> bytes;
  Place<i32> counts;
  i64 total_bytes;
};

constexpr Layout layout_of(i64 num_experts) {
  Carver carver;
  Layout layout{};
  layout.offsets = carver.take<i64>(num_experts + 1);
  layout.nothing = carver.take<float>(0);
  layout.bytes = carver.take<u8>(1);
  layout.counts = carver.take<i32>(num_experts);
  layout.total_bytes = carver.total_bytes();
  return layout;
}

// Checked at compile time: a layout can size arrays and appear in static_asserts.
constexpr Layout kLayout = layout_of(100);
static_assert(kLayout.offsets.offset_bytes == 0);
static_assert(kLayout.bytes.offset_bytes >= kLayout.offsets.bytes(), "places overlap");
static_assert(kLayout.counts.offset_bytes > kLayout.bytes.offset_bytes, "places overlap");
static_assert(kLayout.total_bytes >= kLayout.counts.offset_bytes + kLayout.counts.bytes(), "the total is too small");
static_assert(kLayout.bytes.offset_bytes % kPlaceAlignmentBytes == 0 &&
              kLayout.counts.offset_bytes % kPlaceAlignmentBytes == 0);
static_assert(layout_of(i64{1} << 33).total_bytes > i64{12} << 33, "sizes beyond 32 bits are cut off");

TEST(Carver, PlacesAreWhereTheOffsetsSayAndEmptyOnesAreNull) {
  alignas(kPlaceAlignmentBytes) static unsigned char memory[kLayout.total_bytes];
  EXPECT_EQ(static_cast<void*>(kLayout.offsets.in(memory)), static_cast<void*>(memory));
  EXPECT_EQ(reinterpret_cast<unsigned char*>(kLayout.counts.in(memory)) - memory, kLayout.counts.offset_bytes);
  EXPECT_EQ(kLayout.nothing.in(memory), nullptr);
}

}  // namespace
}  // namespace moelink
