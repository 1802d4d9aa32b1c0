// One block's share of few tokens: one part of one token's row, read early and stored once it is known where it goes.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/held.cuh"
#include "moelink/device/primitives/quantized_part.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#include "moelink/device/primitives/scale_copy.cuh"

namespace moelink {

/// How rows are shared: 2^log2_parts blocks a row. Powers of two, because a division would delay the first load.
template <class Exec, class S>
struct PartShape {
  i32 log2_parts;
  i32 part_bytes;

  /// As many parts as the arguments say (rounded down to a power of two), but so many that one fits a block.
  MOELINK_DEVICE PartShape(S spec, const LocalDispatchArgs& args) {
    const i32 units = static_cast<i32>(spec().token_bytes() / 16);
    log2_parts = max_of(floor_log2(static_cast<u32>(max_of(args.parts, 1))), least_log2_parts(units));
    part_bytes = ((units + (1 << log2_parts) - 1) >> log2_parts) * 16;
    // Whole blocks of 128, the longest, so that elements with one scale are in one warp.
    if (spec().quantize != QuantFormat::none) part_bytes = round_up(part_bytes, 256);
  }

  /// Whether part `index` (of tokens << log2_parts) is a token's first: its block also moves scales, and says what is
  /// known about the token's entries.
  [[nodiscard]] MOELINK_DEVICE bool is_first(i32 index) const { return (index & ((1 << log2_parts) - 1)) == 0; }

 private:
  MOELINK_DEVICE static constexpr i32 least_log2_parts(i32 units) {
    i32 log2 = 0;
    while (((units + (1 << log2) - 1) >> log2) > RowPart<Exec, S>::kMaxBytes / 16) ++log2;
    return log2;
  }
};

/// The weights of one token, read early.
template <class Exec>
class TokenWeights {
 public:
  /// By the block: begins to read those of token `token` at `weights` (null: all 1).
  MOELINK_DEVICE void load(const Exec& ex, const float* weights, i32 token, i32 top_k) {
    held_.load(ex, weights == nullptr ? nullptr : weights + static_cast<i64>(token) * top_k, top_k, 1.0F);
  }
  /// By the block: writes them to scratch, if TokenPart::store() will want them there.
  template <class S>
  MOELINK_DEVICE void store(const Exec& ex, S spec, float* weights) const {
    if (!Exec::kIsDevice || spec().weighted != Element::none) held_.store(ex, weights);
  }
  /// Weight `k`, for the thread k % num_threads.
  MOELINK_DEVICE float get(int k) const { return held_.get(k); }

 private:
  Held<Exec, float> held_;
};

template <class Exec, class S>
class TokenPart {
 public:
  MOELINK_DEVICE explicit TokenPart(S spec) : row_(spec), quantized_(spec), scales_(spec) {}

  [[nodiscard]] MOELINK_DEVICE i32 token() const { return token_; }

  /// By the block: begins to read part `index` (of tokens << log2_parts).
  MOELINK_DEVICE void load(const Exec& ex, S spec, const LocalDispatchArgs& args, const PartShape<Exec, S>& shape,
                           i32 index) {
    token_ = index >> shape.log2_parts;
    first_byte_ = (index & ((1 << shape.log2_parts) - 1)) * shape.part_bytes;
    // Not above zero where there are more parts than units.
    const i32 bytes = min_of(shape.part_bytes, static_cast<i32>(spec().token_bytes()) - first_byte_);
    const i64 token = token_;
    const u8* source = static_cast<const u8*>(args.tokens) + token * args.token_stride_bytes + first_byte_;
    if (spec().quantize != QuantFormat::none) {
      quantized_.load(ex, source, bytes, args.tensor_scale);
    } else {
      row_.load(ex, source, bytes);
    }
    if (spec().quantize == QuantFormat::none && first_byte_ == 0 && args.scales != nullptr) {
      scales_.load(ex, static_cast<const u8*>(args.scales) + token * args.scale_stride_bytes);
    }
  }

  /// By the block, once per load: makes of what was read what will be stored.
  MOELINK_DEVICE void quantize(const Exec& ex, S spec) {
    if (spec().quantize != QuantFormat::none) quantized_.quantize(ex, spec);
  }

  /// By the block, a block barrier after `rows` and `weights` were written: stores the part to every row >= 0.
  MOELINK_DEVICE void store(const Exec& ex, S spec, const LocalDispatchArgs& args, const i32* rows,
                            const float* weights) {
    if (spec().quantize != QuantFormat::none) {
      quantized_.store_all(ex, spec,
                           {.rows = static_cast<u8*>(args.rows),
                            .row_stride_bytes = args.row_stride_bytes,
                            .scales = static_cast<u8*>(args.row_scales),
                            .first_element = first_byte_ / 2,
                            .places = rows});
      return;
    }
    row_.store_all(ex, static_cast<u8*>(args.rows) + first_byte_, args.row_stride_bytes, rows, weights,
                   is_streaming(spec, args));
    if (first_byte_ != 0 || args.row_scales == nullptr) return;
    scales_.store_all(ex, static_cast<u8*>(args.row_scales), rows, spec().top_k);
  }

 private:
  RowPart<Exec, S> row_;
  QuantizedPart<Exec, S> quantized_;  ///< instead of row_, if the spec says so
  ScalePart<Exec, S> scales_;
  i32 token_ = 0;
  i32 first_byte_ = 0;
};

}  // namespace moelink
