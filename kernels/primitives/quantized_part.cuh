// RowPart (row_copy.cuh) for rows that are quantised on the way: the block loads part of a token once, quantises it,
// and stores elements and scales as often as they are wanted. A part is whole blocks of scales.
//
//   part.load(ex, source, bytes, tensor_scale);  // nothing is waited for
//   part.quantize(ex, spec);                     // once per load
//   part.store_all(ex, spec, places); part.send(ex, spec, row, scales, first_element);
#pragma once

#include "moelink/device/primitives/quantize_lanes.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/quant.hpp"

namespace moelink {

/// Where a quantised part goes.
struct QuantizedPlaces {
  u8* rows;
  i64 row_stride_bytes;
  u8* scales;         ///< [rows][scale_bytes of the spec]
  i32 first_element;  ///< of the part
  const i32* places;  ///< [top_k], block scratch: rows; below 0: nowhere
};

template <class Exec, class S>
class QuantizedPart {
 public:
  MOELINK_DEVICE explicit QuantizedPart(S) {}

  /// By the block: begins to read `bytes` bytes of 16-bit elements (a multiple of 16, at most RowPart::kMaxBytes; none
  /// if not above 0). `tensor_scale`: one value, or null: 1.
  MOELINK_DEVICE void load(const Exec& ex, const u8* source, i32 bytes, const float* tensor_scale) {
    tensor_scale_ = tensor_scale == nullptr ? 1.0F : ld_nc_shared_by_all(tensor_scale);
#if MOELINK_ON_DEVICE
    left_ = bytes - ex.thread() * kWideBytes;
    const u8* mine = source + ex.thread() * kWideBytes;
    MOELINK_UNROLL
    for (int i = 0; i < Raw::kVectors; ++i) held_[i] = Vec16{0, 0, 0, 0};
    MOELINK_UNROLL
    for (int i = 0; i < Raw::kAccesses; ++i) {
      const i32 left = left_ - i * Raw::kStep;
      if (left > 0) ld_nc_wide_once(mine + i * Raw::kStep, left, held_ + i * kWideVectors);
    }
#else
    (void)ex;
    source_ = reinterpret_cast<const u16*>(source);
    left_ = bytes;
    elements_ = nullptr;
#endif
  }

  /// By the block: makes of what was read what will be stored.
  MOELINK_DEVICE void quantize(const Exec& ex, S spec) {
#if MOELINK_ON_DEVICE
    with_quant_formats(spec, [&](auto format, auto element) {
      const TensorScale<format()> tensor(tensor_scale_);
      // Of what a warp does not hold it converts nothing.
      const i32 left_of_warp = left_ + ex.lane() * kWideBytes;
      MOELINK_UNROLL
      for (int i = 0; i < Raw::kAccesses; ++i) {
        if (left_of_warp <= i * Raw::kStep) break;
        blocks_[i] = quantize_lanes<format(), element()>(ex, held_ + i * kWideVectors, tensor);
      }
    });
#else
    (void)ex;  // on the way to the first place
    (void)spec;
#endif
  }

  /// By the block: writes the part to every place >= 0.
  MOELINK_DEVICE void store_all(const Exec& ex, S spec, const QuantizedPlaces& to) const {
    with_quant_formats(spec, [&](auto format, auto element) { store_elements<format(), element()>(ex, spec, to); });
  }

  /// By the block: writes the part, from element `first_element` of a row on, to that row.
  MOELINK_DEVICE void send(const Exec& ex, S spec, u8* row, u8* scales, i32 first_element) const {
    with_quant_formats(
        spec, [&](auto format, auto element) { store_row<format(), element()>(ex, row, scales, first_element); });
  }

 private:
#if MOELINK_ON_DEVICE
  using Raw = RowPart<Exec, S>;

  template <QuantFormat F, Element E>
  MOELINK_DEVICE void store_elements(const Exec& ex, S, const QuantizedPlaces& to) const {
    // As RowPart::store_all: several places are read before the first store.
    constexpr int kTopK = S{}().top_k;
    constexpr int kAtOnce = min_of(kTopK, 8);
    MOELINK_NO_UNROLL
    for (int first = 0; first < kTopK; first += kAtOnce) {
      i32 rows[kAtOnce];
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const bool exists = kTopK % kAtOnce == 0 || first + i < kTopK;
        rows[i] = exists ? to.places[first + i] : -1;
      }
      store_rows<F>(ex, to, rows);
    }
  }

  /// Elements to all rows, then scales by the threads that have some.
  template <QuantFormat F, int kRows>
  MOELINK_DEVICE void store_rows(const Exec& ex, const QuantizedPlaces& to, const i32 (&rows)[kRows]) const {
    MOELINK_UNROLL
    for (int i = 0; i < Raw::kAccesses; ++i) {
      const i32 left = (left_ - i * Raw::kStep) / 2;
      if (left <= 0) break;
      const i32 unit = unit_of(ex, to.first_element, i);
      u8* const elements = to.rows + unit * static_cast<i32>(quant_bytes(F, kLaneElements));
      MOELINK_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (rows[k] >= 0) store_lane<F>(elements + rows[k] * to.row_stride_bytes, blocks_[i].elements, left);
      }
      if (unit % kLanesPerBlock<F> != 0) continue;
      u8* const scales = to.scales + unit / kLanesPerBlock<F> * bytes_per_scale(F);
      MOELINK_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (rows[k] >= 0) store_scale<F>(scales + i64{rows[k]} * S{}().scale_bytes, 0, blocks_[i].scale_bits);
      }
    }
  }

  template <QuantFormat F, Element E>
  MOELINK_DEVICE void store_row(const Exec& ex, u8* elements, u8* scales, i32 first_element) const {
    MOELINK_UNROLL
    for (int i = 0; i < Raw::kAccesses; ++i) {
      store_unit<F>(elements, scales, unit_of(ex, first_element, i), blocks_[i], (left_ - i * Raw::kStep) / 2);
    }
  }

  /// Of this thread, of a row.
  [[nodiscard]] MOELINK_DEVICE static i32 unit_of(const Exec& ex, i32 first_element, int access) {
    return first_element / kLaneElements + ex.thread() + access * S{}().threads;
  }

  i32 left_ = 0;  ///< bytes from this thread's first to the end
  Vec16 held_[Raw::kVectors];
  LaneBlock blocks_[Raw::kAccesses];
#else
  template <QuantFormat F, Element E>
  void store_elements(const Exec& ex, S spec, const QuantizedPlaces& to) const {
    for (int k = 0; k < spec().top_k; ++k) {
      const i64 row = to.places[k];
      if (row < 0) continue;
      store_row<F, E>(ex, to.rows + row * to.row_stride_bytes, to.scales + row * spec().scale_bytes, to.first_element);
    }
  }

  /// Quantises into the first row; the others are copies of it.
  template <QuantFormat F, Element E>
  void store_row(const Exec&, u8* row, u8* scales, i32 first_element) const {
    const i64 count = max_of(left_, 0) / 2;
    const i64 first_byte = quant_bytes(F, first_element);
    const i64 first_scale = first_element / block_elements(F) * bytes_per_scale(F);
    if (count == 0) return;
    if (elements_ != nullptr) {
      std::memcpy(row + first_byte, elements_, static_cast<u64>(quant_bytes(F, count)));
      std::memcpy(scales + first_scale, scales_, static_cast<u64>(quant_scale_bytes(F, count)));
      return;
    }
    for (i64 at = 0; at < count; at += block_elements(F)) {
      const i64 block_count = min_of(count - at, static_cast<i64>(block_elements(F)));
      const u32 bits =
          host_quantize_block<F, E>(source_ + at, block_count, tensor_scale_, row + quant_bytes(F, first_element + at));
      store_scale<F>(scales, (first_element + at) / block_elements(F), bits);
    }
    elements_ = row + first_byte;
    scales_ = scales + first_scale;
  }

  mutable const u8* elements_ = nullptr;  ///< where they have been stored
  mutable const u8* scales_ = nullptr;
  const u16* source_ = nullptr;
  i32 left_ = 0;
#endif

  float tensor_scale_ = 1.0F;
};

}  // namespace moelink
