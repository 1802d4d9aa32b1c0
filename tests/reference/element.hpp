// Element types on the host, slow and obvious: values as float, storage as bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "moelink/types.hpp"

namespace moelink::reference {

/// Rounds to the nearest value (ties to even) of a binary format with `fraction_bits` stored fraction bits and
/// exponents min_exponent .. max_exponent.
inline float round_to_format(float value, int fraction_bits, int min_exponent, int max_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double ulp = std::ldexp(1.0, exponent - fraction_bits);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  if (std::fabs(rounded) >= std::ldexp(1.0, max_exponent + 1)) {
    return std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  return static_cast<float>(rounded);
}

inline std::uint16_t bfloat16_bits(float value) {
  if (std::isnan(value)) return 0x7fff;
  const float rounded = round_to_format(value, 7, -126, 127);
  std::uint32_t bits;
  std::memcpy(&bits, &rounded, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline float bfloat16_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

inline std::uint16_t float16_bits(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7fff;
  const double magnitude = std::fabs(round_to_format(value, 10, -14, 15));
  if (std::isinf(magnitude)) return sign | 0x7c00;
  if (magnitude < std::ldexp(1.0, -14)) return sign | static_cast<std::uint16_t>(std::ldexp(magnitude, 24));
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(magnitude, 10 - exponent) - 1024);
  return sign | static_cast<std::uint16_t>((exponent + 15) << 10) | fraction;
}

inline float float16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

/// Element `index` of an array of `type` as float.
inline float load(const void* array, DataType type, std::int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(array) + index * static_cast<std::int64_t>(size_of(type));
  if (type == DataType::float32) {
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return type == DataType::bfloat16 ? bfloat16_value(bits) : float16_value(bits);
}

/// Rounds `value` to `type` and stores it as element `index`.
inline void store(void* array, DataType type, std::int64_t index, float value) {
  auto* bytes = static_cast<unsigned char*>(array) + index * static_cast<std::int64_t>(size_of(type));
  if (type == DataType::float32) {
    std::memcpy(bytes, &value, 4);
    return;
  }
  const std::uint16_t bits = type == DataType::bfloat16 ? bfloat16_bits(value) : float16_bits(value);
  std::memcpy(bytes, &bits, 2);
}

/// Whether two elements hold the same bits, or both a NaN.
inline bool same(const void* a, const void* b, DataType type, std::int64_t index) {
  const float x = load(a, type, index);
  const float y = load(b, type, index);
  return (std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y));
}

}  // namespace moelink::reference
