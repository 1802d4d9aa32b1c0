// One block's share of few tokens that go to ranks: one part of one token's row, read early, stored into slots and to rows.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/held.cuh"
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
    const i32 units = static_cast<i32>(spec().row_bytes / 16);
    log2_parts = max_of(floor_log2(static_cast<u32>(max_of(args.local.parts, 1))), least_log2_parts(units));
    part_bytes = bytes_of_parts(units, log2_parts);
  }

 private:
  /// wire_part_bytes() without a division.
  MOELINK_DEVICE static constexpr i32 bytes_of_parts(i32 units, i32 log2) {
    return ((units + (1 << log2) - 1) >> log2) * 16;
  }
  MOELINK_DEVICE static constexpr i32 least_log2_parts(i32 units) {
    i32 log2 = 0;
    while (bytes_of_parts(units, log2) > RowPart<Exec, S>::kMaxBytes) ++log2;
    return log2;
  }
};

template <class Exec, class S>
class WirePart {
 public:
  MOELINK_DEVICE explicit WirePart(S spec) : row_(spec), scales_(spec) {}

  [[nodiscard]] MOELINK_DEVICE i32 token() const { return token_; }
  /// One of a token's parts also moves scales and says what is known about its entries.
  [[nodiscard]] MOELINK_DEVICE bool is_first() const { return first_byte_ == 0; }

  /// By the block: begins to read part `index` (of tokens << log2_parts), and the weights at `weights` (null: all 1).
  MOELINK_DEVICE void load(const Exec& ex, S spec, const LocalDispatchArgs& args, const WireParts<Exec, S>& parts,
                           i32 index, const float* weights) {
    token_ = index >> parts.log2_parts;
    first_byte_ = (index & ((1 << parts.log2_parts) - 1)) * parts.part_bytes;
    // Not above zero where there are more parts than units.
    const i32 bytes = min_of(parts.part_bytes, static_cast<i32>(spec().row_bytes) - first_byte_);
    const i64 token = token_;
    row_.load(ex, static_cast<const u8*>(args.tokens) + token * args.token_stride_bytes + first_byte_, bytes);
    weights_.load(ex, weights == nullptr ? nullptr : weights + token * spec().top_k, spec().top_k, 1.0F);
    if (is_first() && args.scales != nullptr) {
      scales_.load(ex, static_cast<const u8*>(args.scales) + token * args.scale_stride_bytes);
    }
  }

  /// By the block: writes the weights to scratch, if store() will want them there.
  MOELINK_DEVICE void store_weights(const Exec& ex, S spec, float* weights) const {
    if (!Exec::kIsDevice || spec().weighted != Element::none) weights_.store(ex, weights);
  }
  /// Weight `k`, for the thread k % num_threads.
  [[nodiscard]] MOELINK_DEVICE float weight(int k) const { return weights_.get(k); }

  /// By the block: stores the part, as it is, into a slot's row; scales go behind it.
  MOELINK_DEVICE void send(const Exec& ex, S spec, const LocalDispatchArgs& args, u8* slot_row) const {
    row_.send(ex, slot_row + first_byte_);
    if (is_first() && args.scales != nullptr) scales_.send(ex, slot_row + spec().row_bytes);
  }

  /// By the block, a block barrier after `rows` and `weights` were written: stores the part to every row >= 0.
  MOELINK_DEVICE void store(const Exec& ex, S spec, const LocalDispatchArgs& args, const i32* rows,
                            const float* weights) const {
    row_.store_all(ex, static_cast<u8*>(args.rows) + first_byte_, args.row_stride_bytes, rows, weights,
                   is_streaming(spec, args));
    if (!is_first() || args.row_scales == nullptr) return;
    scales_.store_all(ex, static_cast<u8*>(args.row_scales), rows, spec().top_k);
  }

 private:
  RowPart<Exec, S> row_;
  ScalePart<Exec, S> scales_;
  Held<Exec, float> weights_;
  i32 token_ = 0;
  i32 first_byte_ = 0;
};

}  // namespace moelink
