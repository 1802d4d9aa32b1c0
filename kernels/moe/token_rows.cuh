// Placing the rows of a block's tokens, in order: the part of prefill and of reused routing that moves bytes.
#pragma once

#include "moelink/device/moe/quantized_tokens.cuh"
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

  /// The first blocks have one token more if they cannot all have as many.
  template <class Exec>
  MOELINK_DEVICE TokenRange(const Exec& ex, i32 num_tokens) {
    const u32 each = static_cast<u32>(num_tokens) / static_cast<u32>(ex.num_blocks());
    const u32 rest = static_cast<u32>(num_tokens) - each * static_cast<u32>(ex.num_blocks());
    const u32 block = static_cast<u32>(ex.block());
    first = static_cast<i32>(block * each + min_of(block, rest));
    end = first + static_cast<i32>(each + (block < rest ? 1 : 0));
  }
};

/// Where one entry's row goes.
struct Placement {
  i32 row = -1;  ///< -1: nowhere
  float weight = 1.0F;
};

/// Finds the rows of a range of tokens and moves rows and scales there, batch by batch. begin() only reads, so that it
/// can come before anything is known about places; move() then does all the rest.
///
/// `Finder` has `load(entry) -> Loaded`, which only reads, and `place(entry, Loaded) -> Placement`, which all lanes of
/// one warp call for entries in order (entry -1: this lane has none).
///
/// Rows that are moved as they are go through the ring: one warp copies a batch while another finds the rows of the
/// next, so that the copies never wait for an id; the other warps of the block are free. Rows that are quantised on the
/// way go through the registers of all warps but the one that finds the next. Rows that are weighted go through the
/// registers of the whole block.
template <class Exec, class S>
class TokenRows {
  static constexpr int kBatch = PrefillScratch::kBatch;
  static constexpr int kLanes = Exec::kWarpSize;
  /// Of rows, read before places are known: enough to hide the first way to memory, few enough for nobody to queue
  /// behind them (docs/decisions/0003-decode-routing.md).
  static constexpr i32 kEarlyBytes = 32 << 10;

 public:
  static constexpr int kMovers = Exec::kIsDevice ? 2 : 1;  ///< warps: the copier and the finder (host: one does both)

  /// `scratch`: the block's, carved by `at`.
  MOELINK_DEVICE TokenRows(S spec, const LocalDispatchArgs& args, const PrefillScratch& at, u8* scratch,
                           TokenRange range)
      : spec_(spec),
        args_(args),
        range_(range),
        rows_(reinterpret_cast<i32*>(scratch + at.rows)),
        weights_(reinterpret_cast<float*>(scratch + at.weights)),
        streams_(row_streams(spec, args)),
        ring_(streams_, RingShape(spec().row_bytes, spec().scale_bytes, args.ring_bytes), scratch + at.barriers,
              scratch + at.ring, range.first, range.end) {}

  /// Warps, from the first, that move() keeps busy to the end.
  MOELINK_DEVICE int busy_warps(const Exec& ex) const { return weighted() || quantizes() ? ex.num_warps() : kMovers; }

  /// The warp, one of the movers, whose lanes alone call Finder::place().
  MOELINK_DEVICE int finding_warp() const { return weighted() || quantizes() ? 0 : kMovers - 1; }

  /// Some entries of a batch, as loaded by a lane of the warp that finds.
  template <class Finder>
  struct Some {
    static constexpr int kEach = 4;
    static constexpr int kEntries = kEach * kLanes;
    typename Finder::Loaded loaded[kEach];
  };

  /// By the block, of which the movers begin to read what the first rows need.
  template <class Finder>
  MOELINK_DEVICE Some<Finder> begin(const Exec& ex, const Finder& finder) {
    Some<Finder> first;
    if (ex.warp() == finding_warp()) load(ex, finder, range_.first, 0, first);
    if (rings() && ex.warp() == 0) ring_.start(ex, kEarlyBytes);
    return first;
  }

  /// By the block, instead of move().
  MOELINK_DEVICE void abandon(const Exec& ex) const {
    if (rings() && ex.warp() == 0) ring_.abandon(ex);
  }

  /// By the block. `some`: from begin().
  template <class Finder>
  MOELINK_DEVICE void move(const Exec& ex, const Finder& finder, Some<Finder>& some) {
    if (weighted()) {
      for (i32 token = range_.first; token < range_.end; token += batch_tokens(token)) {
        if (ex.warp() == 0) find(ex, finder, token, 0, some);
        ex.sync_block();
        for (i32 t = 0; t < batch_tokens(token); ++t) copy_weighted(ex, token + t, t * spec_().top_k);
        ex.sync_block();
      }
      return;
    }
    if (quantizes()) return move_quantized(ex, finder, some);
    if (ex.warp() >= kMovers) return;
    const bool copies = ex.warp() == 0;
    const bool finds = ex.warp() == finding_warp();
    if (finds) find(ex, finder, range_.first, 0, some);
    if (copies) ring_.fill(ex);
    ex.sync_first_warps(kMovers);
    int half = 0;
    for (i32 token = range_.first; token < range_.end;) {
      const i32 num_tokens = batch_tokens(token);
      if (copies) {
        const i32* rows = rows_ + half * kBatch;
        for (i32 t = 0; t < num_tokens; ++t) ring_.place(ex, rows + t * spec_().top_k, spec_().top_k);
      }
      token += num_tokens;
      half ^= 1;
      if (finds) find(ex, finder, token, half, some);
      ex.sync_first_warps(kMovers);
    }
    if (copies) ring_.finish(ex);
  }

 private:
  MOELINK_DEVICE bool weighted() const { return spec_().weighted != Element::none; }
  MOELINK_DEVICE bool quantizes() const { return spec_().quantize != QuantFormat::none; }
  MOELINK_DEVICE bool rings() const { return !weighted() && !quantizes(); }
  /// Tokens of the batch that begins at `token`.
  MOELINK_DEVICE i32 batch_tokens(i32 token) const {
    const i32 entries = token == range_.first ? PrefillScratch::kFirstBatch : kBatch;
    return max_of(min_of(entries / spec_().top_k, range_.end - token), 0);
  }

  /// By the warp that finds: begins to read entries of the batch that begins at `first_token`, from its `first` on.
  template <class Finder>
  MOELINK_DEVICE void load(const Exec& ex, const Finder& finder, i32 first_token, int first, Some<Finder>& some) const {
    const int num_entries = batch_tokens(first_token) * spec_().top_k;
    const i64 first_entry = static_cast<i64>(first_token) * spec_().top_k;
    MOELINK_UNROLL
    for (int i = 0; i < Some<Finder>::kEach; ++i) {
      const int slot = first + i * kLanes + ex.lane();
      if (slot < num_entries) some.loaded[i] = finder.load(first_entry + slot);
    }
  }

  /// Rows and weights of a batch's entries into one half of the scratch; scales that the ring does not carry to their
  /// rows. `some`: for the first batch its first entries.
  template <class Finder>
  MOELINK_DEVICE void find(const Exec& ex, const Finder& finder, i32 first_token, int half, Some<Finder>& some) {
    const int num_entries = batch_tokens(first_token) * spec_().top_k;
    const i64 first_entry = static_cast<i64>(first_token) * spec_().top_k;
    for (int first = 0; first < num_entries; first += Some<Finder>::kEntries) {
      if (first != 0 || first_token != range_.first) load(ex, finder, first_token, first, some);
      MOELINK_UNROLL
      for (int i = 0; i < Some<Finder>::kEach; ++i) {
        if (first + i * kLanes >= num_entries) break;
        const int slot = first + i * kLanes + ex.lane();
        const i64 entry = slot < num_entries ? first_entry + slot : -1;
        const Placement placement = finder.place(ex, entry, some.loaded[i]);
        if (entry < 0) continue;
        rows_[half * kBatch + slot] = placement.row;
        if (weighted()) weights_[half * kBatch + slot] = placement.weight;
        if (placement.row >= 0) copy_scales(entry, placement.row);
      }
    }
  }

  template <class Finder>
  MOELINK_DEVICE void move_quantized(const Exec& ex, const Finder& finder, Some<Finder>& some) {
    const QuantizedTokens<Exec, S> tokens(spec_, args_);
    const bool finds = ex.warp() == 0;
    if (finds) find(ex, finder, range_.first, 0, some);
    ex.sync_block();
    int half = 0;
    for (i32 token = range_.first; token < range_.end;) {
      const i32 num_tokens = batch_tokens(token);
      // The finder takes part once there is nothing to find.
      const bool is_last = token + num_tokens >= range_.end;
      const i32 num_finders = Exec::kIsDevice && !is_last ? 1 : 0;
      if (num_finders != 0 && finds) {
        find(ex, finder, token + num_tokens, half ^ 1, some);
      } else {
        tokens.move(ex, token, num_tokens, rows_ + half * kBatch, ex.warp() - num_finders,
                    ex.num_warps() - num_finders);
      }
      token += num_tokens;
      half ^= 1;
      if (!Exec::kIsDevice) find(ex, finder, token, half, some);
      ex.sync_block();
    }
  }

  /// By one thread.
  MOELINK_DEVICE void copy_scales(i64 entry, i64 row) const {
    const bool ring_carries_them = streams_.scales != nullptr && !weighted();
    if (args_.scales == nullptr || ring_carries_them) return;
    const ScalePart<Exec, S> scales(spec_);
    scales.copy(static_cast<u8*>(args_.row_scales) + row * spec_().scale_bytes,
                static_cast<const u8*>(args_.scales) + entry / spec_().top_k * args_.scale_stride_bytes);
  }

  MOELINK_DEVICE void copy_weighted(const Exec& ex, i64 token, int first_slot) const {
    const u8* source = static_cast<const u8*>(args_.tokens) + token * args_.token_stride_bytes;
    RowPart<Exec, S> part(spec_);
    for (i64 at = 0; at < spec_().row_bytes; at += RowPart<Exec, S>::kMaxBytes) {
      const i64 left = spec_().row_bytes - at;
      part.load(ex, source + at, static_cast<i32>(min_of(left, static_cast<i64>(RowPart<Exec, S>::kMaxBytes))));
      for (int k = 0; k < spec_().top_k; ++k) {
        const i64 row = rows_[first_slot + k];
        if (row < 0) continue;
        u8* place = static_cast<u8*>(args_.rows) + row * args_.row_stride_bytes + at;
        part.store(ex, place, weights_[first_slot + k], streams_.streaming);
      }
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
