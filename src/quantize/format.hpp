// The public vocabulary of low precision, as kernels know it.
#pragma once

#include "moelink/protocol/quant.hpp"
#include "moelink/types.hpp"

namespace moelink {

/// Throws nothing: a value that is no Quantization is QuantFormat::none.
[[nodiscard]] constexpr QuantFormat format_of(Quantization format) noexcept {
  switch (format) {
    case Quantization::none:
      return QuantFormat::none;
    case Quantization::fp8:
      return QuantFormat::fp8;
    case Quantization::fp8_pow2:
      return QuantFormat::fp8_pow2;
    case Quantization::mxfp8:
      return QuantFormat::mxfp8;
    case Quantization::mxfp4:
      return QuantFormat::mxfp4;
    case Quantization::nvfp4:
      return QuantFormat::nvfp4;
  }
  return QuantFormat::none;
}

}  // namespace moelink
