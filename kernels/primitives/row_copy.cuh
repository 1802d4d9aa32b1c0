// Moving one row, or part of one, to several places: the block loads it once and stores it as often as it is wanted.
//
//   RowPart<Exec, S> part;
//   part.load(ex, source, bytes);           // by the block; nothing is waited for: find the places meanwhile
//   part.store(ex, spec, place, streaming); // once per place
//
// On a GPU the part travels through registers, 16 bytes a thread; what exceeds kVectors * threads * 16 bytes is read
// again for each place. On the host a store is one copy, past the caches if `streaming`.
#pragma once

#include "moelink/device/primitives/packed.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/types.hpp"
#if !MOELINK_ON_DEVICE
#include "moelink/device/primitives/host_rows.hpp"
#endif

namespace moelink {

template <class Exec>
class RowPart {
 public:
  /// Loads issued at once by one thread.
  static constexpr int kVectors = 4;

  /// By the block: begins to read `bytes` bytes (a multiple of 16).
  MOELINK_DEVICE void load(const Exec& ex, const void* source, i64 bytes) {
    source_ = static_cast<const u8*>(source);
    bytes_ = bytes;
#if MOELINK_ON_DEVICE
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const i64 at = offset(ex, i);
      if (at < bytes_) held_[i] = ld_nc_v4_once(source_ + at);
    }
#else
    (void)ex;
#endif
  }

  /// By the block: writes the part to `place`, multiplied by `weight` if the spec says so.
  template <class S>
  MOELINK_DEVICE void store(const Exec& ex, S spec, u8* place, float weight, bool streaming) const {
#if MOELINK_ON_DEVICE
    (void)streaming;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const i64 at = offset(ex, i);
      if (at < bytes_) st_v4(place + at, scaled<spec().weighted>(held_[i], weight));
    }
    for (i64 at = offset(ex, kVectors); at < bytes_; at += static_cast<i64>(ex.num_threads()) * 16) {
      st_v4(place + at, scaled<spec().weighted>(ld_nc_v4_once(source_ + at), weight));
    }
#else
    (void)ex;
    host_copy_row(place, source_, bytes_, spec().weighted, weight, streaming);
#endif
  }

 private:
  MOELINK_DEVICE static i64 offset(const Exec& ex, int i) {
    return (static_cast<i64>(i) * ex.num_threads() + ex.thread()) * 16;
  }

  const u8* source_ = nullptr;
  i64 bytes_ = 0;
#if MOELINK_ON_DEVICE
  Vec16 held_[kVectors];
#endif
};

/// By one warp: zeroes `bytes` bytes (a multiple of 16).
template <class Exec>
MOELINK_DEVICE void clear_row(const Exec& ex, u8* place, i64 bytes) {
#if MOELINK_ON_DEVICE
  for (i64 at = ex.lane() * 16; at < bytes; at += 32 * 16) st_v4(place + at, Vec16{0, 0, 0, 0});
#else
  (void)ex;
  host_clear_row(place, bytes);
#endif
}

}  // namespace moelink
