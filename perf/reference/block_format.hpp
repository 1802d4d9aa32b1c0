// Low-precision block formats in plain arithmetic, as docs/low-precision.md defines them: what a row must become, and
// what values it then stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "moelink/types.hpp"

namespace moelink::perf {

struct BlockFormat {
  Quantization name = Quantization::none;
  float tensor_scale = 1;  ///< nvfp4's

  /// Elements that share a scale; the last block of a row may have fewer.
  [[nodiscard]] std::int64_t block_elements() const noexcept;
  /// Bytes of a row's elements, and of its scales.
  [[nodiscard]] std::int64_t row_bytes(std::int64_t columns) const noexcept;
  [[nodiscard]] std::int64_t scale_bytes(std::int64_t columns) const noexcept;

  /// Values are finite, and an even number.
  void quantize(std::span<const float> values, std::byte* elements, std::byte* scales) const;
  /// What they stand for: element * scale, rounded to float.
  void dequantize(const std::byte* elements, const std::byte* scales, std::span<float> values) const;

  friend bool operator==(const BlockFormat&, const BlockFormat&) = default;

 private:
  [[nodiscard]] bool is_fp4() const noexcept { return name == Quantization::mxfp4 || name == Quantization::nvfp4; }
  [[nodiscard]] bool has_float_scales() const noexcept {
    return name == Quantization::fp8 || name == Quantization::fp8_pow2;
  }
};

}  // namespace moelink::perf
