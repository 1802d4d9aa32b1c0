#include "perf/reference/element.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moelink::perf {
namespace {

template <class Element>
void expect_exact_round_trip() {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto stored = static_cast<typename Element::Bits>(bits);
    const float value = Element::load(stored);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Element::load(Element::store(value)))) << bits;
    } else {
      EXPECT_EQ(Element::store(value), stored) << bits;
    }
  }
}

TEST(Element, EveryBfloat16SurvivesTheRoundTrip) { expect_exact_round_trip<BFloat16>(); }
TEST(Element, EveryFloat16SurvivesTheRoundTrip) { expect_exact_round_trip<Float16>(); }

TEST(Element, Bfloat16RoundsToNearestTiesToEven) {
  EXPECT_EQ(BFloat16::store(1.0F + 0x1p-8F), 0x3F80);      // a tie: down to even
  EXPECT_EQ(BFloat16::store(1.0F + 3 * 0x1p-8F), 0x3F82);  // a tie: up to even
  EXPECT_EQ(BFloat16::store(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);
  EXPECT_EQ(BFloat16::store(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(BFloat16::store(-0.0F), 0x8000);
}

#ifdef __FLT16_MAX__
TEST(Element, Float16AgreesWithTheCompiler) {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {  // a prime: every pattern of low bits
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(Float16::store(value), std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)))
        << std::hexfloat << value;
  }
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float expected = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
    const float value = Float16::load(static_cast<std::uint16_t>(bits));
    if (!std::isnan(expected)) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected)) << bits;
    }
    EXPECT_EQ(std::isnan(value), std::isnan(expected)) << bits;
  }
}
#endif

}  // namespace
}  // namespace moelink::perf
