// Many tokens that are quantised on the way to their rows: each is read once, in 16-bit elements, and stored as often
// as it is wanted.
//
// On a GPU the warps that take part deal out pieces of tokens among themselves, in order. A warp holds one piece in
// registers, converts it and stores it to all places while the next is under way. On the host a thread has a token.
//
// Ordering: nothing is shared between warps. Each element and scale of a row is written by one lane.
#pragma once

#include "moelink/device/primitives/quantized_part.cuh"
#include "moelink/protocol/local_moe.hpp"

namespace moelink {

template <class Exec, class S>
class QuantizedTokens {
 public:
  MOELINK_DEVICE QuantizedTokens(S spec, const LocalDispatchArgs& args) : spec_(spec), args_(args) {}

  /// Tokens [first, first + count) to their places[count][top_k] (block scratch; below 0: nowhere). By `num_warps`
  /// warps, of which the caller is number `warp`.
  MOELINK_DEVICE void move(const Exec& ex, i32 first, i32 count, const i32* places, i32 warp, i32 num_warps) const {
#if MOELINK_ON_DEVICE
    const float tensor_scale = args_.tensor_scale == nullptr ? 1.0F : *args_.tensor_scale;
    with_quant_formats(spec_, [&](auto format, auto element) {
      move_as<format(), element()>(ex, first, count, places, warp, num_warps, tensor_scale);
    });
#else
    (void)warp;
    (void)num_warps;
    QuantizedPart<Exec, S> part(spec_);
    for (i32 t = 0; t < count; ++t) {
      const u8* token = static_cast<const u8*>(args_.tokens) + i64{first + t} * args_.token_stride_bytes;
      part.load(ex, token, static_cast<i32>(spec_().token_bytes()), args_.tensor_scale);
      part.store_all(ex, spec_,
                     {.rows = static_cast<u8*>(args_.rows),
                      .row_stride_bytes = args_.row_stride_bytes,
                      .scales = static_cast<u8*>(args_.row_scales),
                      .first_element = 0,
                      .places = places + t * spec_().top_k});
    }
#endif
  }

 private:
#if MOELINK_ON_DEVICE
  static constexpr i32 kElements = static_cast<i32>(S{}().token_bytes() / 2);
  static constexpr int kAtOnce = 2 / kWideVectors;  ///< loads of a lane for one piece
  static constexpr i32 kPieceUnits = 32 * kAtOnce;
  static constexpr i32 kPieces = ceil_div(ceil_div(kElements, kLaneElements), kPieceUnits);

  struct Piece {
    Vec16 held[kAtOnce][kWideVectors];

    /// Piece `index` of the tokens at `tokens`. What lies past a token's end is zeros.
    MOELINK_DEVICE void load(const Exec& ex, const u8* tokens, i64 stride_bytes, i32 index) {
      const u8* token = tokens + index / kPieces * stride_bytes;
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const i32 unit = index % kPieces * kPieceUnits + i * 32 + ex.lane();
        MOELINK_UNROLL
        for (int j = 0; j < kWideVectors; ++j) held[i][j] = Vec16{0, 0, 0, 0};
        const i32 left = kElements - unit * kLaneElements;
        if (left > 0) ld_nc_wide_once(token + unit * kWideBytes, 2 * left, held[i]);
      }
    }
  };

  template <QuantFormat F, Element E>
  MOELINK_DEVICE void move_as(const Exec& ex, i32 first, i32 count, const i32* places, i32 warp, i32 num_warps,
                              float tensor_scale) const {
    const TensorScale<F> tensor(tensor_scale);
    const u8* tokens = static_cast<const u8*>(args_.tokens) + first * args_.token_stride_bytes;
    const i32 num_items = count * kPieces;
    Piece next;
    if (warp < num_items) next.load(ex, tokens, args_.token_stride_bytes, warp);
#pragma unroll 1
    for (i32 item = warp; item < num_items; item += num_warps) {
      LaneBlock blocks[kAtOnce];
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) blocks[i] = quantize_lanes<F, E>(ex, next.held[i], tensor);
      if (item + num_warps < num_items) next.load(ex, tokens, args_.token_stride_bytes, item + num_warps);
      store_all<F>(ex, places + item / kPieces * S{}().top_k, item % kPieces * kPieceUnits + ex.lane(), blocks);
    }
  }

  template <QuantFormat F>
  MOELINK_DEVICE void store_all(const Exec&, const i32* places, i32 first_unit, const LaneBlock* blocks) const {
#pragma unroll 4
    for (int k = 0; k < S{}().top_k; ++k) {
      const i64 row = places[k];
      if (row < 0) continue;
      u8* to = static_cast<u8*>(args_.rows) + row * args_.row_stride_bytes;
      u8* scales = static_cast<u8*>(args_.row_scales) + row * S{}().scale_bytes;
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const i32 unit = first_unit + i * 32;
        store_unit<F>(to, scales, unit, blocks[i], kElements - unit * kLaneElements);
      }
    }
  }
#endif

  S spec_;
  const LocalDispatchArgs& args_;
};

}  // namespace moelink
