// Tensor-parallel combine of few tokens: one launch combines this rank's rows and sums over the ranks, one trip.
// Protocol and reuse argument: docs/tensor-parallel.md, "Push".
//
//  Block 0 compares inputs (tensor_parallel_control.cuh). Every other block, for up to kTpItemsAtOnce items at a time,
//  1. sums its rank's rows of the item's units and stores these parts as lines {data, tag} at every peer; its own it
//     keeps in scratch,
//  2. polls its own lines of every peer until they carry this epoch, adds in rank order, rounds once, stores,
//  3. stores the items' epochs.
//
// Memory: lines in the symmetric buffer, one private epoch per item. Ordering: an 8-byte line is single-copy atomic, so
// data and tag arrive together; nothing else crosses.
#pragma once

#include "moelink/device/moe/tensor_parallel_control.cuh"
#include "moelink/device/primitives/tensor_parallel_partial.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

struct TensorParallelPush {
  static constexpr const char* kName = "TensorParallelPush";
  static constexpr const char* kHeader = "moelink/device/moe/tensor_parallel_push.cuh";
  using Spec = TensorParallelSpec;
  using Args = TensorParallelArgs;

  /// A block's own parts.
  static constexpr i32 scratch_bytes(i64 unit_bytes) {
    return kTpItemsAtOnce * kTpItemUnits * static_cast<i32>(unit_bytes);
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (ex.block() == 0) return exchange_control(ex, spec, args, static_cast<u32*>(ex.scratch()));
    with_tp_unit(spec, [&](auto unit) { run_items<decltype(unit)>(ex, spec, args); });
  }

 private:
  /// Ranks polled at once: enough loads in flight to hide one trip, few enough registers not to spill.
  template <class Unit>
  static constexpr int kGroup = 4 / Unit::kVectors;

  template <class Unit, class Exec, class S>
  MOELINK_DEVICE static void run_items(const Exec& ex, S spec, const Args& args) {
    const i64 worker = ex.block() - 1;
    const i64 num_workers = ex.num_blocks() - 1;
    u64* const epochs = args.epochs + TensorParallelEpochs::kItems + args.first_item;
    // Read before it is known whether the token is there: the loads are under way together.
    const i64 first_item = min_of(worker, args.layout.num_items - args.first_item - 1);
    u64 first_epoch = epochs[first_item] + 1;
    const TpUnits units = TpUnits::of<Unit>(spec, args);
    const i64 num_items = ceil_div(units.live, static_cast<i64>(kTpItemUnits));
    Vec16* const own = static_cast<Vec16*>(ex.scratch());
    for (i64 first = worker; first < num_items; first += num_workers * kTpItemsAtOnce) {
      for (int j = 0; j < kTpItemsAtOnce; ++j) {
        const i64 item = first + j * num_workers;
        if (item >= num_items) break;
        send<Unit>(ex, spec, args, units, item, item == worker ? first_epoch : epochs[item] + 1,
                   own + j * kTpItemUnits * Unit::kVectors);
      }
      for (int j = 0; j < kTpItemsAtOnce; ++j) {
        const i64 item = first + j * num_workers;
        if (item >= num_items) break;
        receive<Unit>(ex, spec, args, units, item, item == worker ? first_epoch : epochs[item] + 1,
                      own + j * kTpItemUnits * Unit::kVectors);
      }
      ex.sync_block();
      for (int j = ex.thread(); j < kTpItemsAtOnce; j += ex.num_threads()) {
        const i64 item = first + j * num_workers;
        if (item < num_items) ++epochs[item];
      }
    }
  }

  /// Pairs of lines of one unit: pair p of all units of an item lies side by side, so that every access of a warp is
  /// one run of 512 bytes.
  template <class S>
  MOELINK_DEVICE static WordPair* lines_of(S spec, const Args& args, int holder, int source, i64 item, u64 epoch) {
    const i64 slot = static_cast<i64>(epoch & 1U) * spec().num_ranks + source;
    return args.window.template at<WordPair>(holder, args.layout.lines.offset_bytes, spec().num_ranks) +
           (slot * args.layout.num_items + args.first_item + item) * (kTpItemUnits * args.layout.unit_bytes / 8);
  }

  template <class Unit, class Exec, class S>
  MOELINK_DEVICE static void send(const Exec& ex, S spec, const Args& args, const TpUnits& units, i64 item, u64 epoch,
                                  Vec16* own) {
    const u32 tag = line_tag(epoch);
    for_each_part<Unit>(ex, spec, args, units, item * kTpItemUnits, kTpItemUnits, [&](i32 i, const Unit& part) {
      MOELINK_UNROLL
      for (int step = 1; step < spec().num_ranks; ++step) {
        // Start with the next rank, so that not all ranks store to rank 0 first.
        const int peer = (args.window.rank + step) % spec().num_ranks;
        WordPair* lines = lines_of(spec, args, peer, args.window.rank, item, epoch) + i;
        MOELINK_UNROLL
        for (int v = 0; v < Unit::kVectors; ++v) {
          const Vec16& four = part.vectors[v];
          st_relaxed_sys_pair(lines + 2 * v * kTpItemUnits, {make_line(four.x, tag), make_line(four.y, tag)});
          st_relaxed_sys_pair(lines + (2 * v + 1) * kTpItemUnits, {make_line(four.z, tag), make_line(four.w, tag)});
        }
      }
      // Vectors of all units side by side, each thread's own.
      MOELINK_UNROLL
      for (int v = 0; v < Unit::kVectors; ++v) st_v4(own + v * kTpItemUnits + i, part.vectors[v]);
    });
  }

  template <class Unit, class Exec, class S>
  MOELINK_DEVICE static void receive(const Exec& ex, S spec, const Args& args, const TpUnits& units, i64 item,
                                     u64 epoch, const Vec16* own) {
    for (i32 i = ex.thread(); i < kTpItemUnits; i += ex.num_threads()) {
      VectorSum<Unit::kType> sum[Unit::kVectors];
      bool arrived = true;
      for (int first = 0; first < spec().num_ranks && arrived; first += kGroup<Unit>) {
        arrived = add_group<Unit>(spec, args, item, epoch, i, first, own, sum);
      }
      if (!arrived) return;
      const i64 unit = item * kTpItemUnits + i;
      if (unit >= units.live) continue;
      Vec16 sums[Unit::kVectors];
      MOELINK_UNROLL
      for (int v = 0; v < Unit::kVectors; ++v) sums[v] = sum[v].rounded();
      const i64 per_row = spec().hidden / Unit::kElements;
      const i64 token = unit / per_row;
      TpResult<Unit, S>::of(spec, sums).store(spec, args, token, unit - token * per_row);
    }
  }

  /// Waits for the lines of up to kGroup ranks at once and adds them in rank order; rank 0's values start the sum.
  /// False if there was a fault.
  template <class Unit, class S>
  MOELINK_DEVICE static bool add_group(S spec, const Args& args, i64 item, u64 epoch, i32 i, int first,
                                       const Vec16* own, VectorSum<Unit::kType>* sum) {
    Unit parts[kGroup<Unit>];
    const u32 tag = line_tag(epoch);
    WaitFor what{.phase = FaultPhase::tp_push, .epoch = epoch, .expected = epoch};
    const bool arrived = wait_until(args.fault, what, [&](u64& seen) {
      bool all = true;
      MOELINK_UNROLL
      for (int j = 0; j < kGroup<Unit>; ++j) {
        const int peer = first + j;
        if (peer >= spec().num_ranks) break;
        if (peer == args.window.rank) {
          MOELINK_UNROLL
          for (int v = 0; v < Unit::kVectors; ++v) parts[j].vectors[v] = ld_v4(own + v * kTpItemUnits + i);
          continue;
        }
        if (!try_load_lines(lines_of(spec, args, args.window.rank, peer, item, epoch) + i, tag, parts[j])) {
          what.peer = peer;  // whom to name if it never comes
          all = false;
        }
      }
      seen = all ? epoch : epoch - 1;
      return all;
    });
    if (!arrived) return false;
    MOELINK_UNROLL
    for (int j = 0; j < kGroup<Unit>; ++j) {
      if (first + j >= spec().num_ranks) break;
      MOELINK_UNROLL
      for (int v = 0; v < Unit::kVectors; ++v) {
        first + j == 0 ? sum[v].start(parts[j].vectors[v]) : sum[v].add(parts[j].vectors[v]);
      }
    }
    return true;
  }

  /// True if all lines carry the tag.
  template <class Unit>
  MOELINK_DEVICE static bool try_load_lines(const WordPair* lines, u32 tag, Unit& part) {
    u64 difference = 0;
    const u64 expected = make_line(0, tag);
    MOELINK_UNROLL
    for (int v = 0; v < Unit::kVectors; ++v) {
      const WordPair low = ld_relaxed_sys_pair(lines + 2 * v * kTpItemUnits);
      const WordPair high = ld_relaxed_sys_pair(lines + (2 * v + 1) * kTpItemUnits);
      difference |= (low.first ^ expected) | (low.second ^ expected);
      difference |= (high.first ^ expected) | (high.second ^ expected);
      part.vectors[v] = {static_cast<u32>(low.first), static_cast<u32>(low.second), static_cast<u32>(high.first),
                         static_cast<u32>(high.second)};
    }
    return difference >> 32U == 0;
  }
};

}  // namespace moelink
