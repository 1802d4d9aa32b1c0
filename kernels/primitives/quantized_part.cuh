// RowPart (row_copy.cuh) for rows that are quantised on the way: the block loads part of a token once, quantises it, and
// stores elements and scales as often as they are wanted. A part is whole blocks of scales.
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
  /// if not above 0).
  MOELINK_DEVICE void load(const Exec& ex, const u8* source, i32 bytes) {
#if MOELINK_ON_DEVICE
    left_ = bytes - ex.thread() * 16;
    const u8* mine = source + ex.thread() * 16;
    MOELINK_UNROLL
    for (int i = 0; i < Raw::kVectors; ++i) {
      held_[i] = Vec16{0, 0, 0, 0};
      if (i * Raw::kStep < left_) held_[i] = ld_nc_v4_once(mine + i * Raw::kStep);
    }
#else
    (void)ex;
    source_ = reinterpret_cast<const u16*>(source);
    left_ = bytes;
#endif
  }

  /// By the block: quantises the part and writes it to every place >= 0.
  MOELINK_DEVICE void store_all(const Exec& ex, S spec, const QuantizedPlaces& to, float tensor_scale) const {
    with_quant_format(spec().quantize, [&](auto format) { store_as<format()>(ex, spec, to, tensor_scale); });
  }

 private:
  template <QuantFormat F>
  MOELINK_DEVICE void store_as(const Exec& ex, S spec, const QuantizedPlaces& to, float tensor_scale) const {
    if (spec().input == Element::bfloat16) {
      store_elements<F, Element::bfloat16>(ex, spec, to, tensor_scale);
    } else {
      store_elements<F, Element::float16>(ex, spec, to, tensor_scale);
    }
  }

#if MOELINK_ON_DEVICE
  using Raw = RowPart<Exec, S>;

  template <QuantFormat F, Element E>
  MOELINK_DEVICE void store_elements(const Exec& ex, S, const QuantizedPlaces& to, float tensor_scale) const {
    constexpr int kUnitBytes = static_cast<int>(quant_bytes(F, 8));
    LaneBlock<F> quantized[Raw::kVectors];
    MOELINK_UNROLL
    for (int i = 0; i < Raw::kVectors; ++i) quantized[i] = quantize_lanes<F, E>(ex, held_[i], tensor_scale);
#pragma unroll 4
    for (int k = 0; k < S{}().top_k; ++k) {
      const i64 row = to.places[k];
      if (row < 0) continue;
      u8* elements = to.rows + row * to.row_stride_bytes;
      u8* scales = to.scales + row * S{}().scale_bytes;
      MOELINK_UNROLL
      for (int i = 0; i < Raw::kVectors; ++i) {
        if (i * Raw::kStep >= left_) continue;
        const int unit = to.first_element / 8 + ex.thread() + i * S{}().threads;
        if constexpr (kUnitBytes == 8) {
          *reinterpret_cast<uint2*>(elements + unit * 8) = uint2{quantized[i].elements.low, quantized[i].elements.high};
        } else {
          *reinterpret_cast<u32*>(elements + unit * 4) = quantized[i].elements.low;
        }
        if (unit % kLanesPerBlock<F> != 0) continue;
        store_scale<F>(scales, unit / kLanesPerBlock<F>, quantized[i].scale_bits);
      }
    }
  }

  i32 left_ = 0;  ///< bytes from this thread's first to the end
  Vec16 held_[Raw::kVectors];
#else
  template <QuantFormat F, Element E>
  void store_elements(const Exec&, S spec, const QuantizedPlaces& to, float tensor_scale) const {
    i64 first = -1;  // the row that is quantised into; the others are copies of it
    const i64 begin_bytes = quant_bytes(F, to.first_element);
    const i64 count = max_of(left_, 0) / 2;
    const i64 first_scale = to.first_element / block_elements(F) * bytes_per_scale(F);
    for (int k = 0; k < spec().top_k; ++k) {
      const i64 row = to.places[k];
      if (row < 0 || count == 0) continue;
      u8* elements = to.rows + row * to.row_stride_bytes + begin_bytes;
      u8* scales = to.scales + row * spec().scale_bytes;
      if (first >= 0) {
        std::memcpy(elements, to.rows + first * to.row_stride_bytes + begin_bytes,
                    static_cast<u64>(quant_bytes(F, count)));
        std::memcpy(scales + first_scale, to.scales + first * spec().scale_bytes + first_scale,
                    static_cast<u64>(quant_scale_bytes(F, count)));
        continue;
      }
      for (i64 at = 0; at < count; at += block_elements(F)) {
        const i64 block_count = min_of(count - at, static_cast<i64>(block_elements(F)));
        const u32 bits =
            host_quantize_block<F, E>(source_ + at, block_count, tensor_scale, elements + quant_bytes(F, at));
        store_scale<F>(scales, (to.first_element + at) / block_elements(F), bits);
      }
      first = row;
    }
  }

  const u16* source_ = nullptr;
  i32 left_ = 0;
#endif

  template <QuantFormat F>
  MOELINK_DEVICE static void store_scale(u8* scales, i64 block, u32 bits) {
    if constexpr (bytes_per_scale(F) == 4) {
      reinterpret_cast<u32*>(scales)[block] = bits;
    } else {
      scales[block] = static_cast<u8>(bits);
    }
  }
};

}  // namespace moelink
