// The few functions that kernels need, for NVRTC (which has no <cmath>) and g++ alike.
#pragma once

#include "moelink/device/primitives/convert.cuh"
#include "moelink/protocol/types.hpp"

namespace moelink::engine {

inline constexpr float kNegativeInfinity = __builtin_bit_cast(float, 0xff800000U);

MOELINK_DEVICE float exp_of(float x) {
#if MOELINK_ON_DEVICE
  return expf(x);
#else
  return __builtin_expf(x);
#endif
}

MOELINK_DEVICE float inverse_sqrt(float x) {
#if MOELINK_ON_DEVICE
  return 1.0F / sqrtf(x);
#else
  return 1.0F / __builtin_sqrtf(x);
#endif
}

/// x, or the largest number of fp16 where that is too small for it. Infinities and NaNs stay.
MOELINK_DEVICE float within_fp16(float x) {
  constexpr float kLargest = 65504.0F;
  if (x > kLargest && x < -kNegativeInfinity) return kLargest;
  if (x < -kLargest && x > kNegativeInfinity) return -kLargest;
  return x;
}

MOELINK_DEVICE float clamped(float x, float limit) { return min_of(max_of(x, -limit), limit); }

}  // namespace moelink::engine
