#include "perf/reference/block_format.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace moelink::perf {
namespace {

/// A float of few bits: sign, exponent, mantissa; subnormals, no infinities.
struct Minifloat {
  int mantissa_bits;
  int least_exponent;  ///< of normal values
  float largest;

  /// Of the magnitude: the nearest, ties to even, at most the largest.
  [[nodiscard]] std::uint8_t encode_magnitude(float magnitude) const {
    const float bounded = std::min(magnitude, largest);
    const int exponent = bounded > 0 ? std::max(std::ilogb(bounded), least_exponent) : least_exponent;
    // In units of the last place. What rounds up to the next power of two carries into the exponent as it should.
    const auto units = static_cast<int>(std::nearbyint(std::ldexp(bounded, mantissa_bits - exponent)));
    return static_cast<std::uint8_t>(((exponent - least_exponent) << mantissa_bits) + units);
  }
  [[nodiscard]] float decode_magnitude(int code) const {
    const int field = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int units = field == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    return std::ldexp(static_cast<float>(units), std::max(field, 1) - 1 + least_exponent - mantissa_bits);
  }
};

constexpr Minifloat kE4m3{.mantissa_bits = 3, .least_exponent = -6, .largest = 448};
constexpr Minifloat kE2m1{.mantissa_bits = 1, .least_exponent = 0, .largest = 6};

/// A block's scale: what is stored, and what its elements are multiplied by.
struct Scale {
  float stored_float;
  std::uint8_t stored_byte;
  float factor;
};

Scale scale_of(const BlockFormat& format, float amax) {
  constexpr float kLeast = 0x1p-110F;
  switch (format.name) {
    case Quantization::fp8: {
      const float a = std::max(amax, kLeast);
      return {.stored_float = a / 448, .stored_byte = 0, .factor = 448 / a};
    }
    case Quantization::fp8_pow2: {
      const float a = std::max(amax, kLeast);
      int e = std::ilogb(a / 448);
      while (a > std::ldexp(448.0F, e)) ++e;
      return {.stored_float = std::ldexp(1.0F, e), .stored_byte = 0, .factor = std::ldexp(1.0F, -e)};
    }
    case Quantization::mxfp8:
    case Quantization::mxfp4: {
      const int largest_exponent = format.name == Quantization::mxfp8 ? 8 : 2;
      const int e = amax > 0 ? std::max(std::ilogb(amax) - largest_exponent, -127) : -127;
      return {.stored_float = 0, .stored_byte = static_cast<std::uint8_t>(e + 127), .factor = std::ldexp(1.0F, -e)};
    }
    case Quantization::nvfp4: {
      const std::uint8_t code = kE4m3.encode_magnitude(amax / (6 * format.tensor_scale));
      const float scale = kE4m3.decode_magnitude(code) * format.tensor_scale;
      return {.stored_float = 0, .stored_byte = code, .factor = scale > 0 ? 1 / scale : 0};
    }
    case Quantization::none:
      break;
  }
  return {};
}

}  // namespace

std::int64_t BlockFormat::block_elements() const noexcept {
  switch (name) {
    case Quantization::fp8:
    case Quantization::fp8_pow2:
      return 128;
    case Quantization::mxfp8:
    case Quantization::mxfp4:
      return 32;
    case Quantization::nvfp4:
      return 16;
    case Quantization::none:
      break;
  }
  return 1;
}

std::int64_t BlockFormat::row_bytes(std::int64_t columns) const noexcept { return is_fp4() ? columns / 2 : columns; }

std::int64_t BlockFormat::scale_bytes(std::int64_t columns) const noexcept {
  return (columns + block_elements() - 1) / block_elements() * (has_float_scales() ? 4 : 1);
}

void BlockFormat::quantize(std::span<const float> values, std::byte* elements, std::byte* scales) const {
  const auto in_block = static_cast<std::size_t>(block_elements());
  for (std::size_t begin = 0, block = 0; begin < values.size(); begin += in_block, ++block) {
    const auto of_block = values.subspan(begin, std::min(in_block, values.size() - begin));
    float amax = 0;
    for (const float value : of_block) amax = std::max(amax, std::abs(value));
    const Scale scale = scale_of(*this, amax);
    if (has_float_scales()) {
      std::memcpy(scales + 4 * block, &scale.stored_float, 4);
    } else {
      scales[block] = std::byte{scale.stored_byte};
    }
    for (std::size_t i = 0; i < of_block.size(); ++i) {
      const float scaled = of_block[i] * scale.factor;
      const int sign = std::signbit(scaled) ? 1 : 0;
      if (!is_fp4()) {
        elements[begin + i] = static_cast<std::byte>(kE4m3.encode_magnitude(std::abs(scaled)) | sign << 7);
        continue;
      }
      const auto code = static_cast<std::byte>(kE2m1.encode_magnitude(std::abs(scaled)) | sign << 3);
      std::byte& pair = elements[(begin + i) / 2];
      pair = i % 2 == 0 ? code : pair | code << 4;
    }
  }
}

void BlockFormat::dequantize(const std::byte* elements, const std::byte* scales, std::span<float> values) const {
  const auto in_block = static_cast<std::size_t>(block_elements());
  for (std::size_t begin = 0, block = 0; begin < values.size(); begin += in_block, ++block) {
    float scale = 0;
    if (has_float_scales()) {
      std::memcpy(&scale, scales + 4 * block, 4);
    } else if (const auto code = std::to_integer<int>(scales[block]); name == Quantization::nvfp4) {
      scale = kE4m3.decode_magnitude(code) * tensor_scale;
    } else {
      scale = std::ldexp(1.0F, code - 127);
    }
    for (std::size_t i = begin; i < std::min(begin + in_block, values.size()); ++i) {
      const auto byte = std::to_integer<int>(elements[is_fp4() ? i / 2 : i]);
      const int code = is_fp4() ? byte >> (i % 2 * 4) & 0xF : byte;
      const float magnitude = is_fp4() ? kE2m1.decode_magnitude(code & 0x7) : kE4m3.decode_magnitude(code & 0x7F);
      values[i] = (code & (is_fp4() ? 0x8 : 0x80)) != 0 ? -magnitude * scale : magnitude * scale;
    }
  }
}

}  // namespace moelink::perf
