// Random numbers by counter: the i-th number of a seed can be had without the ones before, so that data can be made,
// and made again for the check, by any thread in any order.
#pragma once

#include <cstdint>

namespace moelink::perf {

/// The i-th 64-bit number of `seed` (SplitMix64: Steele, Lea, Flood 2014).
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) noexcept {
  std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// Seeds that do not overlap for the many things one run needs: its buffer sets, its ids, its weights.
[[nodiscard]] constexpr std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t purpose) noexcept {
  return random_bits(random_bits(seed, purpose), 0x6D6F656C696E6BULL);
}

/// Numbers one after the other.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : seed_(seed) {}

  std::uint64_t bits() noexcept { return random_bits(seed_, next_++); }
  /// In (0, 1]: its logarithm is finite.
  double unit() noexcept { return (static_cast<double>(bits() >> 11) + 1.0) * 0x1p-53; }
  /// In [0, bound); bound is below 2^32.
  std::uint64_t below(std::uint64_t bound) noexcept { return ((bits() >> 32) * bound) >> 32; }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

}  // namespace moelink::perf
