// Moving one row, or part of one, to several places: the block loads it once and stores it as often as it is wanted.
//
//   RowPart<Exec, S> part(spec);
//   part.load(ex, source, bytes);           // by the block; nothing is waited for: find the places meanwhile
//   part.store(ex, place, weight, streaming);  // once per place
//
// On a GPU the part travels through registers, kVectors of 16 bytes a thread, by as wide accesses as the chip has; it
// is no longer than that. On the host a store is one copy, past the caches if `streaming`.
#pragma once

#include "moelink/device/primitives/packed.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/quant.hpp"
#include "moelink/protocol/types.hpp"
#if !MOELINK_ON_DEVICE
#include "moelink/device/primitives/host_rows.hpp"
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

template <class Exec, class S, int kHeld = 2>
class RowPart {
 public:
  static constexpr int kVectors = kHeld;
  static constexpr int kAccesses = kVectors / kWideVectors;
  static constexpr int kStep = S{}().threads * kWideBytes;  ///< bytes that the block moves by one access per thread
  static constexpr int kMaxBytes = kStep * kAccesses;

  MOELINK_DEVICE explicit RowPart(S) {}

  /// By the block: begins to read `bytes` bytes (a multiple of 16, at most kMaxBytes; none if not above 0) that nobody
  /// writes while the kernel runs.
  MOELINK_DEVICE void load(const Exec& ex, const u8* source, i32 bytes) {
    left_ = bytes - ex.thread() * kWideBytes;
    const u8* mine = source + ex.thread() * kWideBytes;
    MOELINK_UNROLL
    for (int i = 0; i < kAccesses; ++i) {
      if (i * kStep < left_) ld_nc_wide_once(mine + i * kStep, left_ - i * kStep, held_ + i * kWideVectors);
    }
  }
  /// The same of what others have written, after the block has acquired it.
  MOELINK_DEVICE void load_received(const Exec& ex, const u8* source, i32 bytes) {
    left_ = bytes - ex.thread() * kWideBytes;
    const u8* mine = source + ex.thread() * kWideBytes;
    MOELINK_UNROLL
    for (int i = 0; i < kAccesses; ++i) {
      if (i * kStep < left_) ld_wide_once(mine + i * kStep, left_ - i * kStep, held_ + i * kWideVectors);
    }
  }

  /// By the block: writes the part to every row >= 0 of `rows` (block scratch), at `base` + row * row_stride_bytes.
  /// Weighted, if the spec says so, by `weights` (block scratch).
  MOELINK_DEVICE void store_all(const Exec& ex, u8* base, i64 row_stride_bytes, const i32* rows, const float* weights,
                                bool streaming) const {
    // Several places are read before the first store: after it they would have to be read again.
    constexpr int kTopK = S{}().top_k;
    constexpr int kAtOnce = min_of(kTopK, 8);
    MOELINK_NO_UNROLL
    for (int first = 0; first < kTopK; first += kAtOnce) {
      i32 places[kAtOnce];
      float factors[kAtOnce];
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const bool exists = kTopK % kAtOnce == 0 || first + i < kTopK;
        places[i] = exists ? rows[first + i] : -1;
        factors[i] = exists && S{}().weighted != Element::none ? weights[first + i] : 1.0F;
      }
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (places[i] >= 0) store(ex, base + static_cast<i64>(places[i]) * row_stride_bytes, factors[i], streaming);
      }
    }
  }

  /// By the block: writes the part to `place`, multiplied by `weight` if the spec says so.
  MOELINK_DEVICE void store(const Exec& ex, u8* place, float weight, bool) const {
    u8* mine = place + ex.thread() * kWideBytes;
    MOELINK_UNROLL
    for (int i = 0; i < kAccesses; ++i) {
      if (i * kStep >= left_) continue;
      Vec16 values[kWideVectors];
      MOELINK_UNROLL
      for (int j = 0; j < kWideVectors; ++j) values[j] = scaled<S{}().weighted>(held_[i * kWideVectors + j], weight);
      st_wide(mine + i * kStep, left_ - i * kStep, values);
    }
  }

  /// By the block: writes the part to `place` as it is, for a peer to read.
  MOELINK_DEVICE void send(const Exec& ex, u8* place) const {
    u8* mine = place + ex.thread() * kWideBytes;
    MOELINK_UNROLL
    for (int i = 0; i < kAccesses; ++i) {
      if (i * kStep < left_) st_wide_no_allocate(mine + i * kStep, left_ - i * kStep, held_ + i * kWideVectors);
    }
  }

 private:
  i32 left_ = 0;  ///< bytes from this thread's first to the end
  Vec16 held_[kVectors];
};

/// A part that somebody has sent. What was quantised on the way was cut by what was read, and is half as long at most:
/// one access a thread, which saves registers.
template <class Exec, class S>
using ReceivedPart = RowPart<Exec, S, S{}().quantize == QuantFormat::none ? 2 : kWideVectors>;

#else

template <class Exec, class S>
class RowPart {
 public:
  static constexpr i32 kMaxBytes = 0x7ffffff0;

  explicit RowPart(S spec) : weighted_(spec().weighted), top_k_(spec().top_k) {}

  void load(const Exec&, const u8* source, i32 bytes) {
    source_ = source;
    bytes_ = max_of(bytes, 0);
  }
  void load_received(const Exec& ex, const u8* source, i32 bytes) { load(ex, source, bytes); }
  void store_all(const Exec& ex, u8* base, i64 row_stride_bytes, const i32* rows, const float* weights,
                 bool streaming) const {
    for (int k = 0; k < top_k_; ++k) {
      if (rows[k] >= 0) store(ex, base + rows[k] * row_stride_bytes, weights[k], streaming);
    }
  }
  void store(const Exec&, u8* place, float weight, bool streaming) const {
    host_copy_row(place, source_, bytes_, weighted_, weight, streaming);
    if (streaming) host_stream_fence();
  }
  void send(const Exec&, u8* place) const { host_copy_row(place, source_, bytes_, Element::none, 1.0F, false); }

 private:
  Element weighted_;
  int top_k_;
  const u8* source_ = nullptr;
  i32 bytes_ = 0;
};

template <class Exec, class S>
using ReceivedPart = RowPart<Exec, S>;

#endif

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
