// Element types in plain arithmetic: what bits mean, and how a float is rounded to them (nearest, ties to even).
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>

#include "moelink/types.hpp"

namespace moelink::perf {

struct BFloat16 {
  using Bits = std::uint16_t;
  static float load(Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static Bits store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40;  // rounding must not turn a NaN into an infinity
    return static_cast<Bits>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet_nan : rounded);
  }
};

struct Float16 {
  using Bits = std::uint16_t;
  static float load(Bits bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7FFF) << 13;
    // As a float's exponent and mantissa this is 2^-112 of the value, also for subnormals. All ones is infinity or NaN.
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
    const std::uint32_t special = magnitude | 0x7F800000;
    return std::bit_cast<float>(sign | ((bits & 0x7C00) == 0x7C00 ? special : std::bit_cast<std::uint32_t>(scaled)));
  }
  static Bits store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint32_t>((bits >> 16) & 0x8000);
    const std::uint32_t magnitude = bits & 0x7FFFFFFF;
    std::uint32_t half = 0;
    if (magnitude > 0x7F800000) {
      half = 0x7E00 | ((magnitude >> 13) & 0x3FF);
    } else if (magnitude >= 0x477FF000) {  // 65520 and more round to infinity
      half = 0x7C00;
    } else if (magnitude >= 0x38800000) {  // normal: subtract 112 from the exponent, round the 13 bits that go
      half = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    } else {  // subnormal: the addition rounds to a multiple of 2^-24, the unit of the last place of 0.5F
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
    }
    return static_cast<Bits>(sign | half);
  }
};

struct Float32 {
  using Bits = std::uint32_t;
  static float load(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits store(float value) { return std::bit_cast<Bits>(value); }
};

/// Opaque rows: for the check, a byte stands for itself / 64, signed.
struct OpaqueByte {
  using Bits = std::uint8_t;
  static float load(Bits bits) { return static_cast<float>(static_cast<std::int8_t>(bits)) / 64.0F; }
};

/// Calls `visit` with the element type of a DataType that can be computed and stored.
template <class Visitor>
decltype(auto) visit_number(DataType type, Visitor&& visit) {
  switch (type) {
    case DataType::bfloat16:
      return visit(BFloat16{});
    case DataType::float16:
      return visit(Float16{});
    case DataType::float32:
      return visit(Float32{});
    case DataType::bytes:
      break;
  }
  throw std::logic_error("bytes are moved, never computed");
}

/// The same for every DataType.
template <class Visitor>
decltype(auto) visit_element(DataType type, Visitor&& visit) {
  return type == DataType::bytes ? visit(OpaqueByte{}) : visit_number(type, visit);
}

}  // namespace moelink::perf
