// A layout is written once: take() hands out places one behind the other, total_bytes() is what to allocate.
//
//   Carver carver;
//   const Place<i64> offsets = carver.take<i64>(num_experts + 1);
//   const Place<float> weights = carver.take<float>(num_entries);
//   void* base = allocate(carver.total_bytes());
//   i64* p = offsets.in(base);
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Every place starts at a multiple of this: whole cache lines and bulk copies on every device known.
inline constexpr i64 kPlaceAlignmentBytes = 256;

/// `count` elements of T at an offset into an allocation that need not be there yet.
template <class T>
struct Place {
  i64 offset_bytes = 0;
  i64 count = 0;

  /// The elements, once `base` (aligned to kPlaceAlignmentBytes) is known; null if there are none.
  T* in(void* base) const {
    return count == 0 ? nullptr : reinterpret_cast<T*>(static_cast<unsigned char*>(base) + offset_bytes);
  }
  constexpr i64 bytes() const { return count * static_cast<i64>(sizeof(T)); }
};

class Carver {
 public:
  template <class T>
  constexpr Place<T> take(i64 count) {
    const Place<T> place{total_bytes_, count};
    total_bytes_ += round_up(place.bytes(), kPlaceAlignmentBytes);
    return place;
  }
  constexpr i64 total_bytes() const { return total_bytes_; }

 private:
  i64 total_bytes_ = 0;
};

}  // namespace moelink
