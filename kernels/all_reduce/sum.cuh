// The sum over ranks of one 16-byte vector, in fp32: ranks ascending, every addition rounded, one rounding at the end.
#pragma once

#include "moelink/device/primitives/convert.cuh"
#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

template <Element E>
class VectorSum {
 public:
  static constexpr int kElements = 16 / bytes_of(E);

  /// Starts from rank 0's values, so that -0 stays -0.
  MOELINK_DEVICE void start(const Vec16& vector) {
    for_each(vector, [this](int i, float value) { sums_[i] = value; });
  }
  MOELINK_DEVICE void add(const Vec16& vector) {
    for_each(vector, [this](int i, float value) { sums_[i] = add_rn(sums_[i], value); });
  }
  MOELINK_DEVICE Vec16 rounded() const {
    if constexpr (E == Element::float32) {
      return {float_bits(sums_[0]), float_bits(sums_[1]), float_bits(sums_[2]), float_bits(sums_[3])};
    } else {
      return {pair(0), pair(2), pair(4), pair(6)};
    }
  }

 private:
  template <class Visit>
  static MOELINK_DEVICE void for_each(const Vec16& vector, Visit&& visit) {
    const u32 words[4] = {vector.x, vector.y, vector.z, vector.w};
    MOELINK_UNROLL
    for (int w = 0; w < 4; ++w) {
      if constexpr (E == Element::float32) {
        visit(w, float_from_bits(words[w]));
      } else {
        visit(2 * w, to_float<E>(static_cast<u16>(words[w])));
        visit(2 * w + 1, to_float<E>(static_cast<u16>(words[w] >> 16U)));
      }
    }
  }

  MOELINK_DEVICE u32 pair(int i) const {
    return static_cast<u32>(from_float<E>(sums_[i])) | static_cast<u32>(from_float<E>(sums_[i + 1])) << 16U;
  }

  float sums_[kElements] = {};
};

}  // namespace moelink
