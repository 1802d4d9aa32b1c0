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

MOELINK_DEVICE float clamped(float x, float limit) { return min_of(max_of(x, -limit), limit); }

}  // namespace moelink::engine
