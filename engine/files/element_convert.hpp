// Elements of tensors as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/files/safetensors.hpp"

namespace moelink::engine {

/// Converts destination.size() elements from `source`, at any alignment. False if the type is none of the floating-point
/// types of 16 or 32 bits; then nothing is written. Exact.
[[nodiscard]] bool convert_to_floats(TensorType type, const std::byte* source, std::span<float> destination);

[[nodiscard]] float float_of_half(std::uint16_t bits) noexcept;

/// bf16 by rounding to the nearest, ties to even; NaN stays NaN.
[[nodiscard]] std::uint16_t bfloat16_of(float value) noexcept;

}  // namespace moelink::engine
