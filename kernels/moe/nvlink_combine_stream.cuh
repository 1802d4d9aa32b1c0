// The nvlink combine of many tokens: each warp has pieces of rows of its own, which it sends or sums in one order (NOTE
// [order of pieces], nvlink_combine_items.cuh), and meets nobody. For NvlinkCombineMany alone
// (nvlink_combine_many.cuh).
//
// On a GPU a warp keeps rows under way while it adds others. For each of its pieces, one behind the other:
//  1. find: which it is; the token's slots are asked for, a lane a rank.
//  2. look up, a piece later: rows of its entries and their weights are asked for, a lane an entry.
//  3. load, a piece later: bulk copies of those rows' pieces into the stages of the warp's ring, as far as they are
//     free, each by the lane that knows the row.
//  4. take, a piece later: rows are added as they come, in the order of k. The sum goes
//      - to the home, through scratch, as a bulk copy. Its flags follow when the next piece's rows have been added: so
//        nobody waits while it crosses, and a release has little to wait for;
//      - or to the output, with the partials of the other ranks, whose flags are waited for only now.
//
// Ordering: rows were written by earlier launches. A stage is read by all lanes, which have used what they read and
// meet before the next copy into it begins: there is no load left that the copy could overtake. A partial is a bulk
// copy out of scratch, fenced for that by the lanes that wrote it; the lane that issued it waits until it is complete
// (wait_group, not .read), the warp meets, and lanes release a flag each. A reader's lanes acquire the flags and the
// warp meets before it reads.
// Progress: a warp sets the flags of all that it has sent before it waits for a partial.
//
// On the host a piece is sent, or summed, as NvlinkCombine does it.
#pragma once

#include "moelink/device/moe/nvlink_combine_rows.cuh"
#include "moelink/protocol/nvlink_combine_plan.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/ptx/bulk_copy.cuh"
#include "moelink/device/ptx/fence.cuh"
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

/// By each lane: units first_unit + lane, ... of a token's sum, of `units`; `own`: this rank's, in scratch. False: a
/// fault.
template <class S>
MOELINK_COLD bool sum_streamed_lines(const NvlinkCombineArgs& args, u64 epoch, i32 token, const i32* slots,
                                     i32 first_unit, i32 units, i32 lane, const u8* own) {
  PartialSum sum{.own = rows_of_entries(args, 0),
                 .partials = nullptr,
                 .pitch_bytes = args.shape.partial_pitch_bytes,
                 .remote = nullptr,
                 .slot_of_rank = slots,
                 .slots = args.shape.max_tokens,
                 .rank = args.window.rank,
                 .lines = &args,
                 .epoch = epoch};
  sum.own.output = static_cast<u8*>(args.local.output) + token * args.local.output_stride_bytes;
  sum.own.accumulate = args.local.accumulate != 0;
  bool is_there = true;
  MOELINK_NO_UNROLL
  for (i32 unit = lane; unit < units && is_there; unit += 32) {
    is_there = sum_line_partials(S{}, sum, ResultCopies{}, first_unit + unit, own + unit * PartialUnits<S{}()>::kBytes);
  }
  return is_there;
}

/// One warp's pieces.
template <class Exec, class S>
class CombineStream {
  static constexpr auto kSpec = S{}();
  using Units = PartialUnits<kSpec>;
  using Partial = typename Units::Partial;
  using Result = Elements<kSpec.output, Units::kUnit>;
  using Row = Elements<kSpec.input, Units::kUnit>;
  static constexpr CombineManyScratch kAt{kSpec};
  static constexpr int kLanes = Exec::kWarpSize;
  static constexpr int kUnit = Units::kUnit;
  static constexpr int kRowBytes = kUnit * bytes_of(kSpec.input);
  static constexpr int kOutBytes = kUnit * bytes_of(kSpec.output);
  static constexpr int kUnits = ceil_div(kAt.piece_elements, kLanes* kUnit);  ///< of a lane
  static constexpr u32 kAll = 0xffffffffU;

 public:
  /// By the whole warp, like all that follows.
  MOELINK_DEVICE CombineStream(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch, bool gets_lines)
      : ex_(ex), spec_(spec), args_(args), epoch_(epoch), gets_lines_(gets_lines) {
    u8* const scratch = static_cast<u8*>(ex.scratch());
    full_ = reinterpret_cast<Mbarrier*>(scratch + kAt.barriers) + ex.warp() * CombineManyScratch::kMostStages;
    staging_ = scratch + kAt.staging + ex.warp() * kAt.staging_bytes;
    ring_ = scratch + kAt.ring + ex.warp() * kAt.stages * kAt.stage_bytes;
    if (ex.lane() == 0) {
      MOELINK_NO_UNROLL
      for (int stage = 0; stage < kAt.stages; ++stage) mbarrier_init(full_ + stage, 1);
      fence_mbarrier_init();
    }
    log2_pieces_ = floor_log2(static_cast<u32>(max_of(args.send_blocks, 1)));
    ex.sync_warp();
  }

  /// False: a fault.
  template <class Order>
  MOELINK_DEVICE bool run(Order& order) {
    Piece taken, loading, found;
    bool is_whole = true;
    bool is_over = false;
    MOELINK_NO_UNROLL
    while (!is_over) {
      hold(loading);
      if (taken.to_load == 0) load(loading);
      look_up(found);
      Piece next;
      find(order, next);
      if (taken.kind != Kind::none) is_whole = take(taken, loading);
      taken = loading;
      loading = found;
      found = next;
      const bool has_none = (taken.kind == Kind::none) & (loading.kind == Kind::none) & (found.kind == Kind::none);
      is_over = !is_whole | has_none;
    }
    raise_flags();
    // What was loaded for nothing, after a fault, has to come all the same.
    MOELINK_NO_UNROLL
    while (num_free_ < kAt.stages) wait_for_stage();
    return is_whole;
  }

 private:
  enum class Kind : i32 { none, sent, sent_as_lines, summed };
  /// A piece on its way.
  struct Piece {
    Kind kind = Kind::none;
    i32 peer = 0;  ///< sent: whose it is
    i32 row = 0;   ///< slot or token
    i32 first_part = 0;
    i32 slot = -1;  ///< to be summed: the token's at the rank that is this lane's
    i32 index = -1;
    float weight = 1;
    u32 exist = 0;    ///< the lanes whose rows exist
    u32 to_load = 0;  ///< those of them whose copies have not begun
  };

  template <class Order>
  MOELINK_DEVICE void find(Order& order, Piece& piece) const {
    const CombineTurn turn = order.next(spec_);
    piece = {};
    if (!turn.exists) return;
    piece.kind = turn.sums ? Kind::summed : turn.what.as_lines ? Kind::sent_as_lines : Kind::sent;
    piece.peer = turn.what.home;
    piece.row = turn.what.piece.index;
    piece.first_part = turn.what.piece.first_part;
    if (turn.sums & (ex_.lane() < kSpec.num_ranks)) {
      piece.slot = args_.tables.slot_of_token[ex_.lane() * args_.shape.max_tokens + piece.row];
    }
  }

  MOELINK_DEVICE void look_up(Piece& piece) const {
    const i32 own_slot = __shfl_sync(kAll, piece.slot, args_.window.rank);
    const bool sums = piece.kind == Kind::summed;
    const i64 slot = sums ? own_slot : piece.row;
    const i64 source = sums ? args_.window.rank : piece.peer;
    const RowSum rows = rows_of_entries(args_, (source * args_.shape.max_tokens + slot) * kSpec.top_k);
    if ((piece.kind != Kind::none) & is_slot(slot) & (ex_.lane() < kSpec.top_k)) {
      piece.index = rows.indices[ex_.lane()];
      if (rows.weights != nullptr) piece.weight = rows.weights[ex_.lane()];
    }
  }

  MOELINK_DEVICE void hold(Piece& piece) const {
    piece.exist = __ballot_sync(kAll, static_cast<u32>(piece.index) < rows_of_entries(args_, 0).num_rows);
    piece.to_load = piece.exist;
  }

  MOELINK_DEVICE bool is_slot(i64 slot) const {
    return static_cast<u64>(slot) < static_cast<u64>(args_.shape.max_tokens);
  }
  MOELINK_DEVICE i32 parts_of_piece() const { return partial_parts(kSpec.hidden) >> log2_pieces_; }
  MOELINK_DEVICE int first_element(const Piece& piece) const { return first_element_of_part(spec_, piece.first_part); }
  MOELINK_DEVICE int num_units(const Piece& piece) const {
    return (first_element_of_part(spec_, piece.first_part + parts_of_piece()) - first_element(piece)) / kUnit;
  }

  /// Begins what fits. Stages are taken as they were loaded: so nothing of a piece before all of the one before it.
  MOELINK_DEVICE void load(Piece& piece) {
    if (piece.to_load == 0 || num_free_ == 0) return;
    const u32 mine = 1U << ex_.lane();
    const int number = __popc(piece.to_load & (mine - 1));
    const bool begins = (piece.to_load & mine) != 0 && number < num_free_;
    if (begins) {
      int stage = load_stage_ + number;
      if (stage >= kAt.stages) stage -= kAt.stages;
      const RowSum rows = rows_of_entries(args_, 0);
      const u32 bytes = static_cast<u32>(num_units(piece) * kRowBytes);
      mbarrier_arrive_expect_tx(full_ + stage, bytes);
      bulk_copy_global_to_shared(ring_ + stage * kAt.stage_bytes,
                                 rows.rows + piece.index * rows.row_stride_bytes +
                                     static_cast<i64>(first_element(piece)) * bytes_of(kSpec.input),
                                 bytes, full_ + stage);
    }
    const u32 begun = __ballot_sync(kAll, begins);
    piece.to_load &= ~begun;
    num_free_ -= __popc(begun);
    load_stage_ += __popc(begun);
    if (load_stage_ >= kAt.stages) load_stage_ -= kAt.stages;
  }

  /// Waits for the stage whose turn it is, which then is the next one's. Returns it.
  MOELINK_DEVICE const u8* wait_for_stage() {
    const u8* const stage = ring_ + stage_ * kAt.stage_bytes;
    while (!mbarrier_try_wait_parity(full_ + stage_, parity_)) {
      // This warp's own load is under way: it always ends.
    }
    ++num_free_;
    if (++stage_ == kAt.stages) {
      stage_ = 0;
      parity_ ^= 1;
    }
    return stage;
  }

  /// Adds up the piece's rows here, and sends the sum or makes the token's. Loads more meanwhile: of `next`, too.
  MOELINK_DEVICE bool take(Piece& piece, Piece& next) {
    const int units = num_units(piece);
    float totals[kUnits][kUnit] = {};
    MOELINK_NO_UNROLL
    for (u32 rest = piece.exist; rest != 0; rest &= rest - 1) {
      const float weight = __shfl_sync(kAll, piece.weight, __ffs(static_cast<int>(rest)) - 1);
      const u8* const stage = wait_for_stage();
      Row rows[kUnits];
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) rows[u].load_scratch(stage + min_of(unit_of(u), units - 1) * kRowBytes);
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        float values[kUnit];
        rows[u].to_floats(values);
        MOELINK_UNROLL
        for (int i = 0; i < kUnit; ++i) totals[u][i] = add_rn(totals[u][i], mul_rn(values[i], weight));
      }
      ex_.sync_warp();
      load(piece);
      if (piece.to_load == 0) load(next);
    }
    raise_flags();
    Partial partials[kUnits];
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) partials[u].from_floats(totals[u]);
    if (piece.kind == Kind::summed) return sum(piece, partials);
    send(piece, partials);
    return true;
  }

  MOELINK_DEVICE int unit_of(int u) const { return ex_.lane() + u * kLanes; }

  MOELINK_DEVICE void send(const Piece& piece, const Partial* partials) {
    const int units = num_units(piece);
    const i64 first_bytes = static_cast<i64>(first_element(piece)) * bytes_of(kSpec.partial);
    if (kSpec.may_have_lines() && piece.kind == Kind::sent_as_lines) {
      u8* const lines = line_partial_place(spec_, args_, piece.peer, piece.row);
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        if (unit_of(u) >= units) continue;
        partials[u].store_lines(lines, first_bytes + unit_of(u) * Units::kBytes, tag_of(epoch_));
      }
      return;
    }
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      if (unit_of(u) < units) partials[u].store_scratch(staging_ + unit_of(u) * Units::kBytes);
    }
    fence_proxy_async();
    ex_.sync_warp();
    if (ex_.lane() == 0) {
      bulk_copy_shared_to_global(partial_place(spec_, args_, piece.peer, piece.row) + first_bytes, staging_,
                                 static_cast<u32>(units * Units::kBytes));
      bulk_commit_group();
    }
    flags_ = combine_flags(spec_, args_, piece.peer, args_.window.rank) + static_cast<i64>(piece.row) * kMaxWireParts +
             piece.first_part;
  }

  /// The flags of what was sent last, once it has arrived; and then its place in scratch is free.
  MOELINK_DEVICE void raise_flags() {
    if (flags_ == nullptr) return;
    if (ex_.lane() == 0) bulk_wait_group<0>();
    ex_.sync_warp();
    if (ex_.lane() < parts_of_piece()) st_release_sys(flags_ + ex_.lane(), epoch_);
    flags_ = nullptr;
  }

  /// False: a fault.
  MOELINK_DEVICE bool wait_for_partials(const Piece& piece) const {
    const i32 log2_parts = floor_log2(static_cast<u32>(parts_of_piece()));
    bool is_there = true;
    MOELINK_NO_UNROLL
    for (i32 first = 0; first < kSpec.num_ranks << log2_parts; first += kLanes) {
      const i32 i = first + ex_.lane();
      const i32 rank = i >> log2_parts;
      const i32 slot = __shfl_sync(kAll, piece.slot, rank % kLanes);
      const bool waits = (rank < kSpec.num_ranks) & (rank != args_.window.rank) & is_slot(slot);
      if (!waits) continue;
      const u64* flag = combine_flags(spec_, args_, args_.window.rank, rank) + static_cast<i64>(slot) * kMaxWireParts +
                        piece.first_part + (i & (parts_of_piece() - 1));
      const WaitFor wait{.phase = FaultPhase::combine_receive, .peer = rank, .epoch = epoch_, .expected = epoch_};
      is_there &= wait_until_reached_sys(args_.fault, wait, flag);
    }
    ex_.sync_warp();
    return __all_sync(kAll, is_there) != 0;
  }

  /// The token's sum; `own`: of the rows here. False: a fault.
  MOELINK_DEVICE bool sum(const Piece& piece, const Partial* own) const {
    if (kSpec.may_have_lines() && gets_lines_) return sum_lines(piece, own);
    if (!wait_for_partials(piece)) return false;
    const int units = num_units(piece);
    const int first_unit = first_element(piece) / kUnit;
    u8* const output = static_cast<u8*>(args_.local.output) + piece.row * args_.local.output_stride_bytes +
                       static_cast<i64>(first_unit) * kOutBytes;
    const auto at = [&](int u) { return min_of(unit_of(u), units - 1); };
    float totals[kUnits][kUnit] = {};
    if (args_.local.accumulate != 0) {
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        Result before;
        before.load(output + at(u) * kOutBytes);
        before.to_floats(totals[u]);
      }
    }
    const u8* const here = partials_here(spec_, args_) + static_cast<i64>(first_unit) * Units::kBytes;
    MOELINK_NO_UNROLL
    for (int rank = 0; rank < kSpec.num_ranks; ++rank) {
      const i64 slot = __shfl_sync(kAll, piece.slot, rank);
      if (!is_slot(slot)) continue;
      const u8* partial = here + (rank * args_.shape.max_tokens + slot) * args_.shape.partial_pitch_bytes;
      Partial partials[kUnits];
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        if (rank == args_.window.rank) {
          partials[u] = own[u];
        } else {
          partials[u].load_from_peer(partial + at(u) * Units::kBytes);
        }
      }
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        float values[kUnit];
        partials[u].to_floats(values);
        MOELINK_UNROLL
        for (int i = 0; i < kUnit; ++i) totals[u][i] = add_rn(totals[u][i], values[i]);
      }
    }
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      Result result;
      result.from_floats(totals[u]);
      if (unit_of(u) < units) result.store(output + unit_of(u) * kOutBytes);
    }
    return true;
  }

  /// The same where partials come as lines, which is rare: a launch for many tokens that finds few.
  MOELINK_DEVICE bool sum_lines(const Piece& piece, const Partial* own) const {
    i32* const slots = reinterpret_cast<i32*>(static_cast<u8*>(ex_.scratch()) + kAt.slots) + ex_.warp() * kLanes;
    const int units = num_units(piece);
    slots[ex_.lane()] = piece.slot;
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      if (unit_of(u) < units) own[u].store_scratch(staging_ + unit_of(u) * Units::kBytes);
    }
    ex_.sync_warp();
    const bool is_there = sum_streamed_lines<S>(args_, epoch_, piece.row, slots, first_element(piece) / kUnit, units,
                                                ex_.lane(), staging_);
    ex_.sync_warp();
    return __all_sync(kAll, is_there) != 0;
  }

  const Exec& ex_;
  S spec_;
  const NvlinkCombineArgs& args_;
  u64 epoch_;
  bool gets_lines_;
  Mbarrier* full_;  ///< [stages]
  u8* staging_;
  u8* ring_;
  int num_free_ = kAt.stages;
  int load_stage_ = 0;
  int stage_ = 0;
  u32 parity_ = 0;
  i32 log2_pieces_;       ///< of a row
  u64* flags_ = nullptr;  ///< of what was sent last; null: they are set
};

#else

/// One block's pieces: as NvlinkCombine has them.
template <class Exec, class S>
class CombineStream {
 public:
  CombineStream(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch, bool gets_lines)
      : ex_(ex), spec_(spec), args_(args), epoch_(epoch), gets_lines_(gets_lines) {}

  template <class Order>
  bool run(Order& order) {
    using Rows = NvlinkCombineRows;
    bool is_whole = true;
    for (CombineTurn turn = order.next(spec_); turn.exists && is_whole; turn = order.next(spec_)) {
      if (turn.sums) {
        is_whole = Rows::sum_token(ex_, spec_, args_, turn.what.piece, epoch_, gets_lines_, false, [] {});
        continue;
      }
      Rows::store_partial(ex_, spec_, args_, turn.what, epoch_);
      if (!turn.what.as_lines) Rows::release_partial(ex_, spec_, args_, turn.what, epoch_);
    }
    return is_whole;
  }

 private:
  const Exec& ex_;
  S spec_;
  const NvlinkCombineArgs& args_;
  u64 epoch_;
  bool gets_lines_;
};

#endif

}  // namespace moelink
