// Tensor-parallel combine of few tokens: one launch combines this rank's rows and sums over the ranks, one trip. Protocol
// and reuse argument: docs/tensor-parallel.md, "Push".
//
//  Block 0 compares inputs (tensor_parallel_control.cuh). Every other block, for up to kTpItemsAtOnce items at a time,
//  1. sums its rank's rows of the item's units in fp32 and stores them as lines {data, tag} at every peer; its own it
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

  /// A block's own partial sums.
  static constexpr i32 scratch_bytes(i64 hidden) {
    return kTpItemsAtOnce * kTpItemUnits * tp_unit_elements(hidden) * static_cast<i32>(sizeof(float));
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (ex.block() == 0) return exchange_control(ex, spec, args, static_cast<u32*>(ex.scratch()));
    with_tp_unit(spec, [&](auto unit) { run_items<unit()>(ex, spec, args); });
  }

 private:
  /// Ranks polled at once: enough loads in flight to hide one trip, few enough registers not to spill.
  static constexpr int kGroup = 2;

  template <int kUnit, class Exec, class S>
  MOELINK_DEVICE static void run_items(const Exec& ex, S spec, const Args& args) {
    const i64 worker = ex.block() - 1;
    const i64 num_workers = ex.num_blocks() - 1;
    u64* const epochs = args.epochs + TensorParallelEpochs::kItems;
    // Read before it is known whether the token is there: the loads are under way together.
    const i64 first_item = min_of(worker, args.layout.num_items - 1);
    u64 first_epoch = epochs[first_item] + 1;
    const TpUnits units = TpUnits::of<kUnit>(spec, args);
    const i64 num_items = ceil_div(units.live, static_cast<i64>(kTpItemUnits));
    float* const own = static_cast<float*>(ex.scratch());
    for (i64 first = worker; first < num_items; first += num_workers * kTpItemsAtOnce) {
      for (int j = 0; j < kTpItemsAtOnce; ++j) {
        const i64 item = first + j * num_workers;
        if (item >= num_items) break;
        send<kUnit>(ex, spec, args, units, item, item == worker ? first_epoch : epochs[item] + 1,
                    own + j * kTpItemUnits * kUnit);
      }
      for (int j = 0; j < kTpItemsAtOnce; ++j) {
        const i64 item = first + j * num_workers;
        if (item >= num_items) break;
        receive<kUnit>(ex, spec, args, units, item, item == worker ? first_epoch : epochs[item] + 1,
                       own + j * kTpItemUnits * kUnit);
      }
      ex.sync_block();
      for (int j = ex.thread(); j < kTpItemsAtOnce; j += ex.num_threads()) {
        const i64 item = first + j * num_workers;
        if (item < num_items) ++epochs[item];
      }
    }
  }

  /// Pairs of lines of one unit: pair p of all units of an item lies side by side, so that every access of a warp is one
  /// run of 512 bytes.
  template <int kUnit, class S>
  MOELINK_DEVICE static WordPair* lines_of(S spec, const Args& args, int holder, int source, i64 item, u64 epoch) {
    const i64 slot = static_cast<i64>(epoch & 1U) * spec().num_ranks + source;
    return args.window.template at<WordPair>(holder, args.layout.lines.offset_bytes, spec().num_ranks) +
           (slot * args.layout.num_items + item) * (kTpItemUnits * kUnit / 2);
  }

  template <int kUnit, class Exec, class S>
  MOELINK_DEVICE static void send(const Exec& ex, S spec, const Args& args, const TpUnits& units, i64 item, u64 epoch,
                                  float* own) {
    const u32 tag = line_tag(epoch);
    for_each_partial<kUnit>(ex, spec, args, units, item * kTpItemUnits, kTpItemUnits, [&](i32 i, const float* values) {
      MOELINK_UNROLL
      for (int step = 1; step < spec().num_ranks; ++step) {
        // Start with the next rank, so that not all ranks store to rank 0 first.
        const int peer = (args.window.rank + step) % spec().num_ranks;
        WordPair* lines = lines_of<kUnit>(spec, args, peer, args.window.rank, item, epoch) + i;
        MOELINK_UNROLL
        for (int p = 0; p < kUnit / 2; ++p) {
          st_relaxed_sys_pair(lines + p * kTpItemUnits, {make_line(float_bits(values[2 * p]), tag),
                                                         make_line(float_bits(values[2 * p + 1]), tag)});
        }
      }
      // Vectors of all units side by side, each thread's own.
      MOELINK_UNROLL
      for (int v = 0; v < kUnit / 4; ++v) {
        const float* four = values + 4 * v;
        st_v4(own + (v * kTpItemUnits + i) * 4,
              Vec16{float_bits(four[0]), float_bits(four[1]), float_bits(four[2]), float_bits(four[3])});
      }
    });
  }

  template <int kUnit, class Exec, class S>
  MOELINK_DEVICE static void receive(const Exec& ex, S spec, const Args& args, const TpUnits& units, i64 item,
                                     u64 epoch, const float* own) {
    for (i32 i = ex.thread(); i < kTpItemUnits; i += ex.num_threads()) {
      float sum[kUnit];
      bool arrived = true;
      for (int first = 0; first < spec().num_ranks && arrived; first += kGroup) {
        arrived = add_group<kUnit>(spec, args, item, epoch, i, first, own, sum);
      }
      if (!arrived) return;
      store_tp_output<kUnit>(spec, args, units, item * kTpItemUnits + i, RoundedUnit<kUnit, S>(spec, sum));
    }
  }

  /// Waits for the lines of up to kGroup ranks at once and adds them in rank order; rank 0's values start the sum. False
  /// if there was a fault.
  template <int kUnit, class S>
  MOELINK_DEVICE static bool add_group(S spec, const Args& args, i64 item, u64 epoch, i32 i, int first,
                                       const float* own, float* sum) {
    float values[kGroup][kUnit];
    const u32 tag = line_tag(epoch);
    WaitFor what{.phase = FaultPhase::tp_push, .epoch = epoch, .expected = epoch};
    const bool arrived = wait_until(args.fault, what, [&](u64& seen) {
      bool all = true;
      MOELINK_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        const int peer = first + j;
        if (peer >= spec().num_ranks) break;
        if (peer == args.window.rank) {
          load_own<kUnit>(own, i, values[j]);
          continue;
        }
        if (!try_load_lines<kUnit>(lines_of<kUnit>(spec, args, args.window.rank, peer, item, epoch) + i, tag,
                                   values[j])) {
          what.peer = peer;  // whom to name if it never comes
          all = false;
        }
      }
      seen = all ? epoch : epoch - 1;
      return all;
    });
    if (!arrived) return false;
    MOELINK_UNROLL
    for (int j = 0; j < kGroup; ++j) {
      if (first + j >= spec().num_ranks) break;
      MOELINK_UNROLL
      for (int e = 0; e < kUnit; ++e) sum[e] = first + j == 0 ? values[j][e] : add_rn(sum[e], values[j][e]);
    }
    return true;
  }

  template <int kUnit>
  MOELINK_DEVICE static void load_own(const float* own, i32 i, float* values) {
    MOELINK_UNROLL
    for (int v = 0; v < kUnit / 4; ++v) {
      const Vec16 four = ld_v4(own + (v * kTpItemUnits + i) * 4);
      values[4 * v] = float_from_bits(four.x);
      values[4 * v + 1] = float_from_bits(four.y);
      values[4 * v + 2] = float_from_bits(four.z);
      values[4 * v + 3] = float_from_bits(four.w);
    }
  }

  /// True if all lines carry the tag.
  template <int kUnit>
  MOELINK_DEVICE static bool try_load_lines(const WordPair* lines, u32 tag, float* values) {
    u64 difference = 0;
    const u64 expected = make_line(0, tag);
    MOELINK_UNROLL
    for (int p = 0; p < kUnit / 2; ++p) {
      const WordPair pair = ld_relaxed_sys_pair(lines + p * kTpItemUnits);
      difference |= (pair.first ^ expected) | (pair.second ^ expected);
      values[2 * p] = float_from_bits(static_cast<u32>(pair.first));
      values[2 * p + 1] = float_from_bits(static_cast<u32>(pair.second));
    }
    return difference >> 32U == 0;
  }
};

}  // namespace moelink
