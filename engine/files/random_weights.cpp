#include <algorithm>
#include <cmath>

#include "engine/files/weight_source.hpp"

namespace moelink::engine {
namespace {

/// SplitMix64 (Steele, Lea, Flood 2014): a good number for each position, in any order.
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

/// FNV-1a: std::hash differs between libraries.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return hash;
}

}  // namespace

void RandomWeights::read(const std::string& name, std::span<const std::int64_t> shape, std::int64_t begin,
                         std::span<float> destination) const {
  if (shape.size() < 2) {
    std::fill(destination.begin(), destination.end(), 1.0F);
    return;
  }
  // Uniform between -limit and limit: the variance of a sum over `columns` products is that of what goes in.
  const float limit = std::sqrt(3.0F / static_cast<float>(shape.back()));
  const std::uint64_t start = mixed(seed_ ^ hash_of(name));
  auto position = static_cast<std::uint64_t>(begin);
  for (float& value : destination) {
    const std::uint64_t bits = mixed(start + 0x9E3779B97F4A7C15U * ++position);
    value = limit * static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31F;
  }
}

}  // namespace moelink::engine
