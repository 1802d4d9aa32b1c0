#include "engine/files/element_convert.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace moelink::engine {

float float_of_half(std::uint16_t bits) noexcept {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  float magnitude = 0;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0F : 1.0F);
}

std::uint16_t bfloat16_of(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // a NaN whose payload is in the lower half stays one
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

bool convert_to_floats(TensorType type, const std::byte* source, std::span<float> destination) {
  switch (type) {
    case TensorType::f32:
      std::memcpy(destination.data(), source, destination.size_bytes());
      return true;
    case TensorType::bf16:
    case TensorType::f16:
      for (std::size_t i = 0; i < destination.size(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
        destination[i] = type == TensorType::bf16 ? std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)
                                                  : float_of_half(bits);
      }
      return true;
    default:
      return false;
  }
}

}  // namespace moelink::engine
