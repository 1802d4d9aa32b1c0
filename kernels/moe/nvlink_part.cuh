// One block's share of few tokens that go to ranks: one part of one token's row, read early, stored into slots and to
// rows.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/held.cuh"
#include "moelink/device/primitives/quantized_part.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#include "moelink/device/primitives/scale_copy.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// How rows are shared: 2^log2_parts blocks a row, which is WireFormat::parts. Powers of two, because a division would
/// delay the first load.
template <class Exec, class S>
struct WireParts {
  i32 log2_parts;
  i32 part_bytes;

  /// As many parts as the arguments say (rounded down to a power of two), but so many that one fits a block.
  MOELINK_DEVICE WireParts(S spec, const NvlinkDispatchArgs& args) {
    const i32 bytes = static_cast<i32>(spec().row_bytes);
    log2_parts = max_of(floor_log2(static_cast<u32>(max_of(args.local.parts, 1))),
                        least_log2_parts(bytes, spec().token_bytes_per_byte()));
    part_bytes = wire_part_bytes_log2(bytes, log2_parts);
  }

 private:
  /// A block holds a part as it reads it.
  MOELINK_DEVICE static constexpr i32 least_log2_parts(i32 bytes, i32 read_per_byte) {
    i32 log2 = 0;
    while (wire_part_bytes_log2(bytes, log2) > RowPart<Exec, S>::kMaxBytes / read_per_byte) ++log2;
    return log2;
  }
};

template <class Exec, class S>
class WirePart {
 public:
  MOELINK_DEVICE explicit WirePart(S spec) : row_(spec), quantized_(spec), scales_(spec) {}

  [[nodiscard]] MOELINK_DEVICE i32 token() const { return token_; }
  /// One of a token's parts also moves scales that came with it, and says what is known about its entries.
  [[nodiscard]] MOELINK_DEVICE bool is_first() const { return first_byte_ == 0; }

  /// By the block: begins to read part `index` (of tokens << log2_parts), and the weights at `weights` (null: all 1).
  MOELINK_DEVICE void load(const Exec& ex, S spec, const LocalDispatchArgs& args, const WireParts<Exec, S>& parts,
                           i32 index, const float* weights) {
    token_ = index >> parts.log2_parts;
    first_byte_ = (index & ((1 << parts.log2_parts) - 1)) * parts.part_bytes;
    // Not above zero where there are more parts than units.
    const i32 bytes = min_of(parts.part_bytes, static_cast<i32>(spec().row_bytes) - first_byte_);
    const i64 token = token_;
    const i32 read_per_byte = spec().token_bytes_per_byte();
    const u8* source =
        static_cast<const u8*>(args.tokens) + token * args.token_stride_bytes + first_byte_ * read_per_byte;
    if (spec().quantize != QuantFormat::none) {
      quantized_.load(ex, source, bytes * read_per_byte, args.tensor_scale);
    } else {
      row_.load(ex, source, bytes);
    }
    weights_.load(ex, weights == nullptr ? nullptr : weights + token * spec().top_k, spec().top_k, 1.0F);
    if (spec().quantize == QuantFormat::none && is_first() && args.scales != nullptr) {
      scales_.load(ex, static_cast<const u8*>(args.scales) + token * args.scale_stride_bytes);
    }
  }

  /// By the block: writes the weights to scratch, if store() will want them there.
  MOELINK_DEVICE void store_weights(const Exec& ex, S spec, float* weights) const {
    if (!Exec::kIsDevice || spec().weighted != Element::none) weights_.store(ex, weights);
  }
  /// Weight `k`, for the thread k % num_threads.
  [[nodiscard]] MOELINK_DEVICE float weight(int k) const { return weights_.get(k); }

  /// By the block, once per load: makes of what was read what will be stored.
  MOELINK_DEVICE void quantize(const Exec& ex, S spec) {
    if (spec().quantize != QuantFormat::none) quantized_.quantize(ex, spec);
  }

  /// By the block: stores the part, not weighted, into a slot's row; scales go behind it.
  MOELINK_DEVICE void send(const Exec& ex, S spec, const LocalDispatchArgs& args, u8* slot_row) {
    if (spec().quantize != QuantFormat::none) {
      return quantized_.send(ex, spec, slot_row, slot_row + spec().row_bytes, first_element(spec));
    }
    row_.send(ex, slot_row + first_byte_);
    if (is_first() && args.scales != nullptr) scales_.send(ex, slot_row + spec().row_bytes);
  }

  /// By the block, a block barrier after `rows` and `weights` were written: stores the part to every row >= 0.
  MOELINK_DEVICE void store(const Exec& ex, S spec, const LocalDispatchArgs& args, const i32* rows,
                            const float* weights) {
    if (spec().quantize != QuantFormat::none) {
      return quantized_.store_all(ex, spec,
                                  {.rows = static_cast<u8*>(args.rows),
                                   .row_stride_bytes = args.row_stride_bytes,
                                   .scales = static_cast<u8*>(args.row_scales),
                                   .first_element = first_element(spec),
                                   .places = rows});
    }
    row_.store_all(ex, static_cast<u8*>(args.rows) + first_byte_, args.row_stride_bytes, rows, weights,
                   is_streaming(spec, args));
    if (!is_first() || args.row_scales == nullptr) return;
    scales_.store_all(ex, static_cast<u8*>(args.row_scales), rows, spec().top_k);
  }

 private:
  [[nodiscard]] MOELINK_DEVICE i32 first_element(S spec) const {
    return first_byte_ * (spec().token_bytes_per_byte() / 2);
  }

  RowPart<Exec, S> row_;
  QuantizedPart<Exec, S> quantized_;  ///< instead of row_, if the spec says so
  ScalePart<Exec, S> scales_;
  Held<Exec, float> weights_;
  i32 token_ = 0;
  i32 first_byte_ = 0;
};

}  // namespace moelink
