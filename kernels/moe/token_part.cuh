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

 private:
  MOELINK_DEVICE static constexpr i32 least_log2_parts(i32 units) {
    i32 log2 = 0;
    while (((units + (1 << log2) - 1) >> log2) > RowPart<Exec, S>::kMaxBytes / 16) ++log2;
    return log2;
  }
};

template <class Exec, class S>
class TokenPart {
 public:
  MOELINK_DEVICE explicit TokenPart(S spec) : row_(spec), quantized_(spec), scales_(spec) {}

  [[nodiscard]] MOELINK_DEVICE i32 token() const { return token_; }
  /// One of a token's parts also moves scales and says what is known about its entries.
  [[nodiscard]] MOELINK_DEVICE bool is_first() const { return first_byte_ == 0; }

  /// By the block: begins to read part `index` (of tokens << log2_parts), and the weights at `weights` (null: all 1).
  MOELINK_DEVICE void load(const Exec& ex, S spec, const LocalDispatchArgs& args, const PartShape<Exec, S>& shape,
                           i32 index, const float* weights) {
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
    const float* weights_of_token = weights == nullptr ? nullptr : weights + token * spec().top_k;
    weights_.load(ex, weights_of_token, spec().top_k, 1.0F);
    if (spec().quantize == QuantFormat::none && is_first() && args.scales != nullptr) {
      scales_.load(ex, static_cast<const u8*>(args.scales) + token * args.scale_stride_bytes);
    }
  }

  /// By the block: writes the weights to scratch, if store() will want them there.
  MOELINK_DEVICE void store_weights(const Exec& ex, S spec, float* weights) const {
    if (!Exec::kIsDevice || spec().weighted != Element::none) weights_.store(ex, weights);
  }
  /// Weight `k`, for the thread k % num_threads.
  MOELINK_DEVICE float weight(int k) const { return weights_.get(k); }

  /// By the block, a block barrier after `rows` and `weights` were written: stores the part to every row >= 0.
  MOELINK_DEVICE void store(const Exec& ex, S spec, const LocalDispatchArgs& args, const i32* rows,
                            const float* weights) {
    if (spec().quantize != QuantFormat::none) {
      quantized_.quantize(ex, spec);
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
    if (!is_first() || args.row_scales == nullptr) return;
    scales_.store_all(ex, static_cast<u8*>(args.row_scales), rows, spec().top_k);
  }

 private:
  RowPart<Exec, S> row_;
  QuantizedPart<Exec, S> quantized_;  ///< instead of row_, if the spec says so
  ScalePart<Exec, S> scales_;
  Held<Exec, float> weights_;
  i32 token_ = 0;
  i32 first_byte_ = 0;
};

}  // namespace moelink
