// The nvlink combine of many tokens: each warp has pieces of rows of its own, which it sends or sums in one order (NOTE
// [order of pieces], nvlink_combine_items.cuh), and meets nobody. For NvlinkCombineMany alone
// (nvlink_combine_many.cuh).
//
// On a GPU a warp keeps rows under way while it adds others. For each of its pieces, one behind the other:
//  1. find: which it is; the token's slots are asked for, a lane a rank.
//  2. look up, a piece later: rows of its entries and their weights are asked for, a lane an entry.
//  3. load, a piece later: bulk copies of those rows' pieces into the warp's ring, as far as there is room
//     (primitives/warp_rows.cuh).
//  4. take, a piece later: rows are added as they come, in the order of k. The sum goes
//      - to the home, whose flags the block's last warp stores for all (primitives/flag_warp.cuh): so nobody else waits
//        until what was stored has crossed;
//      - or to the output, with the partials of the other ranks, whose flags are waited for only now.
//
// Ordering: rows were written by earlier launches. A partial is ordinary stores of a warp and a post behind them; the
// rest is the flag warp's. A reader's lanes acquire flags, and the warp meets before it reads.
// Progress: what a warp has sent is posted before it waits for a partial, and the flag warp waits for no other rank.
//
// On the host a piece is sent, or summed, as NvlinkCombine does it.
#pragma once

#include "moelink/device/moe/nvlink_combine_rows.cuh"
#include "moelink/protocol/nvlink_combine_plan.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/primitives/flag_warp.cuh"
#include "moelink/device/primitives/warp_rows.cuh"
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

/// The pieces of one warp, or, by the block's last, the flags of the others.
template <class Exec, class S>
class CombineStream {
  static constexpr auto kSpec = S{}();
  static constexpr CombineManyScratch kAt{kSpec};
  using Units = PartialUnits<kSpec>;
  using Partial = typename Units::Partial;
  using Result = Elements<kSpec.output, Units::kUnit>;
  using Row = Elements<kSpec.input, Units::kUnit>;
  using Rows = WarpRows<Exec, kAt.stages, kAt.stage_bytes>;
  static constexpr int kLanes = Exec::kWarpSize;
  static constexpr int kUnit = Units::kUnit;
  static constexpr int kRowBytes = kUnit * bytes_of(kSpec.input);
  static constexpr int kOutBytes = kUnit * bytes_of(kSpec.output);
  static constexpr int kUnits = ceil_div(kAt.piece_elements, kLanes* kUnit);  ///< of a lane
  static constexpr u32 kAll = 0xffffffffU;
  static_assert(kSpec.threads / kLanes == kAt.warps + 1 && kAt.warps <= FlagPosts::kMostPosters,
                "without a warp of their own, flags would never be stored");

 public:
  /// By the block, a block barrier before anything else.
  MOELINK_DEVICE static void prepare(const Exec& ex) { clear(ex, posts_of(ex)); }

  /// Whether this warp has no pieces, and stores the others' flags.
  MOELINK_DEVICE static bool is_flag_warp(const Exec& ex) { return ex.warp() >= kAt.warps; }
  /// By that warp, until the others have sent all that they will.
  MOELINK_DEVICE static void store_flags(const Exec& ex, const NvlinkCombineArgs& args, u64 epoch) {
    store_posted_flags(ex, posts_of(ex), kAt.warps, partial_parts(kSpec.hidden) >> log2_pieces_of(args), epoch);
  }

  /// By the whole warp, like all that follows.
  MOELINK_DEVICE CombineStream(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch, bool gets_lines)
      : ex_(ex),
        spec_(spec),
        args_(args),
        epoch_(epoch),
        gets_lines_(gets_lines),
        log2_pieces_(log2_pieces_of(args)),
        rows_(ex, scratch<Mbarrier>(ex, kAt.barriers) + ex.warp() * CombineManyScratch::kMostStages,
              scratch<u8>(ex, kAt.ring) + ex.warp() * kAt.stages * kAt.stage_bytes),
        poster_(posts_of(ex), ex.warp()) {}

  /// False: a fault.
  template <class Order>
  MOELINK_DEVICE bool run(Order& order) {
    rows_.start();
    Piece taken, loading, found;
    bool is_whole = true;
    bool is_over = false;
    MOELINK_NO_UNROLL
    while (!is_over) {
      loading.rows.arrive(num_rows());
      if (taken.rows.to_load == 0) load(loading);
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
    poster_.finish(ex_);
    rows_.drain();
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
    LaneRows rows;
  };

  template <class T>
  MOELINK_DEVICE static T* scratch(const Exec& ex, i32 at) {
    return reinterpret_cast<T*>(static_cast<u8*>(ex.scratch()) + at);
  }
  MOELINK_DEVICE static FlagPosts& posts_of(const Exec& ex) {
    static_assert(sizeof(FlagPosts) == CombineManyScratch::kPostBytes);
    return *scratch<FlagPosts>(ex, kAt.posts);
  }
  MOELINK_DEVICE u8* own_scratch() const { return scratch<u8>(ex_, kAt.own) + ex_.warp() * kAt.own_bytes; }

  MOELINK_DEVICE static i32 log2_pieces_of(const NvlinkCombineArgs& args) {
    return floor_log2(static_cast<u32>(max_of(args.send_blocks, 1)));
  }
  MOELINK_DEVICE u32 num_rows() const { return rows_of_entries(args_, 0).num_rows; }
  MOELINK_DEVICE bool is_slot(i64 slot) const {
    return static_cast<u64>(slot) < static_cast<u64>(args_.shape.max_tokens);
  }
  MOELINK_DEVICE i32 parts_of_piece() const { return partial_parts(kSpec.hidden) >> log2_pieces_; }
  MOELINK_DEVICE int first_element(const Piece& piece) const { return first_element_of_part(spec_, piece.first_part); }
  MOELINK_DEVICE int num_units(const Piece& piece) const {
    return (first_element_of_part(spec_, piece.first_part + parts_of_piece()) - first_element(piece)) / kUnit;
  }
  MOELINK_DEVICE int unit_of(int u) const { return ex_.lane() + u * kLanes; }

  template <class Order>
  MOELINK_DEVICE void find(Order& order, Piece& piece) const {
    const CombineTurn turn = order.next(spec_);
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
    const RowSum entries = rows_of_entries(args_, (source * args_.shape.max_tokens + slot) * kSpec.top_k);
    if ((piece.kind != Kind::none) & is_slot(slot) & (ex_.lane() < kSpec.top_k)) {
      piece.rows.index = entries.indices[ex_.lane()];
      if (entries.weights != nullptr) piece.rows.weight = entries.weights[ex_.lane()];
    }
  }

  MOELINK_DEVICE void load(Piece& piece) {
    const RowSum rows = rows_of_entries(args_, 0);
    rows_.load(piece.rows, {.first = rows.rows + static_cast<i64>(first_element(piece)) * bytes_of(kSpec.input),
                            .row_stride_bytes = rows.row_stride_bytes,
                            .bytes = static_cast<u32>(num_units(piece) * kRowBytes)});
  }

  /// Adds up the piece's rows here, and sends the sum or makes the token's. Loads more meanwhile: of `next`, too.
  MOELINK_DEVICE bool take(Piece& piece, Piece& next) {
    const int units = num_units(piece);
    float totals[kUnits][kUnit] = {};
    MOELINK_NO_UNROLL
    for (u32 rest = piece.rows.exist; rest != 0; rest &= rest - 1) {
      const float weight = piece.rows.weight_of(__ffs(static_cast<int>(rest)) - 1);
      const u8* const stage = rows_.take();
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
      rows_.done();
      load(piece);
      if (piece.rows.to_load == 0) load(next);
    }
    Partial partials[kUnits];
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) partials[u].from_floats(totals[u]);
    if (piece.kind == Kind::summed) return sum(piece, partials);
    return send(piece, partials);
  }

  /// False: a fault.
  MOELINK_DEVICE bool send(const Piece& piece, const Partial* partials) {
    const int units = num_units(piece);
    const i64 first_bytes = static_cast<i64>(first_element(piece)) * bytes_of(kSpec.partial);
    if (kSpec.may_have_lines() && piece.kind == Kind::sent_as_lines) {
      u8* const lines = line_partial_place(spec_, args_, piece.peer, piece.row);
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        if (unit_of(u) >= units) continue;
        partials[u].store_lines(lines, first_bytes + unit_of(u) * Units::kBytes, tag_of(epoch_));
      }
      return true;
    }
    u8* const to = partial_place(spec_, args_, piece.peer, piece.row) + first_bytes;
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      if (unit_of(u) < units) partials[u].store(to + unit_of(u) * Units::kBytes);
    }
    const WaitFor wait{.phase = FaultPhase::combine_send, .peer = piece.peer, .epoch = epoch_, .expected = epoch_};
    return poster_.post(ex_, args_.fault, wait,
                        combine_flags_of(spec_, args_, piece.peer, piece.row) + piece.first_part);
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
    i32* const slots = scratch<i32>(ex_, kAt.slots) + ex_.warp() * kLanes;
    u8* const own_bytes = own_scratch();
    const int units = num_units(piece);
    slots[ex_.lane()] = piece.slot;
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      if (unit_of(u) < units) own[u].store_scratch(own_bytes + unit_of(u) * Units::kBytes);
    }
    ex_.sync_warp();
    const bool is_there = sum_streamed_lines<S>(args_, epoch_, piece.row, slots, first_element(piece) / kUnit, units,
                                                ex_.lane(), own_bytes);
    ex_.sync_warp();
    return __all_sync(kAll, is_there) != 0;
  }

  const Exec& ex_;
  S spec_;
  const NvlinkCombineArgs& args_;
  u64 epoch_;
  bool gets_lines_;
  i32 log2_pieces_;  ///< of a row
  Rows rows_;
  FlagPoster poster_;
};

#else

/// One block's pieces: as NvlinkCombine has them.
template <class Exec, class S>
class CombineStream {
 public:
  CombineStream(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch, bool gets_lines)
      : ex_(ex), spec_(spec), args_(args), epoch_(epoch), gets_lines_(gets_lines) {}

  static void prepare(const Exec&) {}
  static bool is_flag_warp(const Exec&) { return false; }
  static void store_flags(const Exec&, const NvlinkCombineArgs&, u64) {}

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
