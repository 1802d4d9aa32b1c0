// Placing the rows of a block's tokens, in order: the part of prefill and of reused routing that moves bytes.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#include "moelink/device/primitives/row_ring.cuh"
#include "moelink/device/primitives/scale_copy.cuh"

namespace moelink {

template <class S>
MOELINK_DEVICE RowStreams row_streams(S spec, const LocalDispatchArgs& args) {
  const bool bulk_scales = args.scales != nullptr && RingShape::bulk_scale_bytes(spec().scale_bytes) != 0;
  return {.tokens = static_cast<const u8*>(args.tokens),
          .token_stride_bytes = args.token_stride_bytes,
          .rows = static_cast<u8*>(args.rows),
          .row_stride_bytes = args.row_stride_bytes,
          .row_bytes = spec().row_bytes,
          .scales = bulk_scales ? static_cast<const u8*>(args.scales) : nullptr,
          .scale_stride_bytes = args.scale_stride_bytes,
          .row_scales = static_cast<u8*>(args.row_scales),
          .scale_bytes = spec().scale_bytes,
          .streaming = is_streaming(spec, args)};
}

/// Tokens [first, end) of one block.
struct TokenRange {
  i32 first;
  i32 end;

  template <class Exec>
  MOELINK_DEVICE TokenRange(const Exec& ex, i32 num_tokens)
      : first(static_cast<i32>(static_cast<i64>(num_tokens) * ex.block() / ex.num_blocks())),
        end(static_cast<i32>(static_cast<i64>(num_tokens) * (ex.block() + 1) / ex.num_blocks())) {}
};

/// Where one entry's row goes.
struct Placement {
  i32 row = -1;  ///< -1: nowhere
  float weight = 1.0F;
};

/// Walks the tokens of a range in groups whose entries fill a warp, asks `find(entry) -> Placement` for each entry in
/// order (all lanes of the warp call it; entry -1: none) and moves rows and scales there.
///
/// Rows that are moved as they are go through the ring, and one warp does all of this alone; rows that are weighted on
/// the way go through the registers of the whole block.
template <class Exec, class S>
class TokenRows {
 public:
  static constexpr int kLanes = Exec::kWarpSize;

  /// `scratch`: the block's, carved by `at`.
  MOELINK_DEVICE TokenRows(S spec, const LocalDispatchArgs& args, const PrefillScratch& at, u8* scratch, int min_chunks,
                           TokenRange range)
      : spec_(spec),
        args_(args),
        range_(range),
        rows_(reinterpret_cast<i32*>(scratch + at.rows)),
        weights_(reinterpret_cast<float*>(scratch + at.weights)),
        streams_(row_streams(spec, args)),
        ring_(streams_, RingShape(spec().row_bytes, spec().scale_bytes, min_chunks, args.ring_bytes),
              scratch + at.barriers, scratch + at.ring, range.first, range.end) {}

  /// By the block: begins to load, long before it is known where rows go.
  MOELINK_DEVICE void start(const Exec& ex) {
    if (!weighted() && ex.warp() == 0) ring_.start(ex);
  }

  /// By the block, instead of move().
  MOELINK_DEVICE void abandon(const Exec& ex) {
    if (!weighted() && ex.warp() == 0) ring_.abandon(ex);
  }

  /// By the block.
  template <class Find>
  MOELINK_DEVICE void move(const Exec& ex, const Find& find) {
    if (!weighted() && ex.warp() != 0) return;
    const int top_k = spec_().top_k;
    const int group_tokens = max_of(kLanes / top_k, 1);
    for (i32 token = range_.first; token < range_.end; token += group_tokens) {
      const int num_tokens = min_of(group_tokens, range_.end - token);
      if (ex.warp() == 0) place_entries(ex, token, num_tokens * top_k, find);
      sync(ex);
      for (int t = 0; t < num_tokens; ++t) {
        if (weighted()) {
          copy_weighted(ex, token + t, t * top_k);
        } else {
          ring_.place(ex, rows_ + t * top_k, top_k);
        }
      }
      sync(ex);
    }
    if (!weighted()) ring_.finish(ex);
  }

 private:
  MOELINK_DEVICE bool weighted() const { return spec_().weighted != Element::none; }
  MOELINK_DEVICE void sync(const Exec& ex) const {
    if (weighted()) {
      ex.sync_block();
    } else {
      ex.sync_warp();
    }
  }

  /// Rows and weights of a group's entries into scratch; scales that the ring does not carry to their rows.
  template <class Find>
  MOELINK_DEVICE void place_entries(const Exec& ex, i32 first_token, int num_entries, const Find& find) {
    const ScalePart<Exec, S> scales(spec_);
    for (int first = 0; first < num_entries; first += kLanes) {
      const int slot = first + ex.lane();
      const i64 entry = static_cast<i64>(first_token) * spec_().top_k + slot;
      const Placement placement = find(slot < num_entries ? entry : -1);
      rows_[slot] = placement.row;
      weights_[slot] = placement.weight;
      if (placement.row < 0 || args_.scales == nullptr || (streams_.scales != nullptr && !weighted())) continue;
      scales.copy(static_cast<u8*>(args_.row_scales) + static_cast<i64>(placement.row) * spec_().scale_bytes,
                  static_cast<const u8*>(args_.scales) + entry / spec_().top_k * args_.scale_stride_bytes);
    }
  }

  MOELINK_DEVICE void copy_weighted(const Exec& ex, i64 token, int first_slot) const {
    RowPart<Exec> part;
    part.load(ex, static_cast<const u8*>(args_.tokens) + token * args_.token_stride_bytes, spec_().row_bytes);
    for (int k = 0; k < spec_().top_k; ++k) {
      const i64 row = rows_[first_slot + k];
      if (row < 0) continue;
      part.store(ex, spec_, static_cast<u8*>(args_.rows) + row * args_.row_stride_bytes, weights_[first_slot + k],
                 streams_.streaming);
    }
  }

  S spec_;
  const LocalDispatchArgs& args_;
  TokenRange range_;
  i32* rows_;
  float* weights_;
  RowStreams streams_;
  RowRing<Exec> ring_;
};

}  // namespace moelink
