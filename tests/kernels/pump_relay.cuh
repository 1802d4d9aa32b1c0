// Test kernel: blocks pass rows on through slots. Each block sends its rows to slots, batch by batch, a flag for each,
// and puts every second one where it belongs on the way; the block after it waits for the flags and places the others.
// Of those placed on the way, every second one is in no slot.
#pragma once

#include "moelink/device/primitives/row_pump.cuh"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink::test {

struct PumpRelay {
  static constexpr const char* kName = "PumpRelay";
  static constexpr const char* kHeader = "moelink/test/pump_relay.cuh";

  struct Spec {
    i64 row_bytes = 0;
    i32 scale_bytes = 0;
    i32 top_k = 0;
    i32 threads = 0;
    Element weighted = Element::none;
    QuantFormat quantize = QuantFormat::none;  ///< as in NvlinkDispatchSpec, with `input`
    Element input = Element::none;
    constexpr auto fields(auto&& visit) const {
      return visit(row_bytes, scale_bytes, top_k, threads, weighted, quantize, input);
    }
    MOELINK_DEVICE constexpr i32 token_bytes_per_byte() const { return moelink::token_bytes_per_byte(quantize); }
  };

  struct Args {
    const u8* input = nullptr;  ///< [blocks * rows_per_block, row_bytes]; quantising: elements of 16 bits
    const u8* input_scales = nullptr;
    u8* slots = nullptr;          ///< [blocks * rows_per_block][slot_bytes]
    i64 slot_bytes = 0;           ///< at least row_bytes + scale_bytes, a multiple of 16
    u64* flags = nullptr;         ///< [blocks * rows_per_block], of each batch at its first row; below `epoch` before
    const i32* places = nullptr;  ///< [blocks * rows_per_block][top_k], -1: none
    const float* weights = nullptr;  ///< likewise
    RowTargets to{};
    u64 epoch = 0;
    i32 rows_per_block = 0;
    bool places_late = false;  ///< all rows go to slots, and are placed by the block after
    i32 ring_bytes = 0;
    u64* num_lost = nullptr;  ///< blocks that waited in vain
    FaultContext fault;
  };

  /// Whether a row is stored in its slot.
  MOELINK_DEVICE static bool has_slot(i32 row_in_block, bool places_late) {
    return places_late || row_in_block % 4 != 2;
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    Finder<Exec, S> finder{spec, args};
    RowPump<Exec, S> pump(spec, args.to, PumpScratch(0, spec().top_k, args.ring_bytes), static_cast<u8*>(ex.scratch()),
                          args.ring_bytes);
    pump.run(ex, finder);
    if (ex.sync_block_or(finder.lost) && ex.thread() == 0) *args.num_lost = 1;
  }

 private:
  template <class Exec, class S>
  struct Finder {
    S spec;
    const Args& args;
    i32 next = 0;  ///< own rows, then those of the block before
    bool lost = false;

    MOELINK_DEVICE bool find(const Exec& ex, const RowBatch& batch) {
      if (lost || next == 2 * args.rows_per_block) return false;
      const bool sends = next < args.rows_per_block;
      const i32 row_in_block = sends ? next : next - args.rows_per_block;
      const i32 block = (ex.block() + (sends ? 0 : ex.num_blocks() - 1)) % ex.num_blocks();
      const i32 first = block * args.rows_per_block + row_in_block;
      // Batches of 1 to 8 rows, by turns.
      const i32 num_rows = min_of(1 + (row_in_block * 5 + block) % PumpScratch::kBatchRows,  //
                                  args.rows_per_block - row_in_block);
      if (!sends) {
        const WaitFor what{.phase = FaultPhase::dispatch_receive, .epoch = args.epoch, .expected = args.epoch};
        lost = !wait_until_reached_sys(args.fault, what, args.flags + first);
        ex.sync_warp();
        if (lost) return false;
      }
      if (ex.lane() == 0) {
        batch.head->num_rows = num_rows;
        batch.head->flag = args.flags + first;
        batch.head->value = sends ? args.epoch : 0;
      }
      for (i32 i = ex.lane(); i < num_rows; i += Exec::kWarpSize) {
        batch.jobs[i] = job(first + i, sends, has_slot(row_in_block + i, args.places_late));
      }
      for (i32 i = ex.lane(); i < num_rows * spec().top_k; i += Exec::kWarpSize) {
        const i64 entry = static_cast<i64>(first) * spec().top_k + i;
        const bool here = is_placed_first(row_in_block + i / spec().top_k) == sends;
        batch.places[i] = here ? args.places[entry] : -1;
        batch.weights[i] = args.weights[entry];
      }
      next += num_rows;
      return true;
    }

    MOELINK_DEVICE void raise(u64* flag, u64 value) const { st_release_sys(flag, value); }

    /// Whether a row is placed by the block that sends it.
    MOELINK_DEVICE bool is_placed_first(i32 row_in_block) const { return !args.places_late && row_in_block % 2 == 0; }

    MOELINK_DEVICE RowJob job(i64 row, bool sends, bool copies) const {
      u8* slot = args.slots + row * args.slot_bytes;
      const bool scales = args.input_scales != nullptr;
      if (!sends)
        return {.row = slot, .scales = scales ? slot + spec().row_bytes : nullptr, .copy = nullptr, .slot = 0};
      const bool is_raw = spec().quantize != QuantFormat::none;
      return {.row = args.input + row * spec().row_bytes * spec().token_bytes_per_byte(),
              .scales = scales && !is_raw ? args.input_scales + row * spec().scale_bytes : nullptr,
              .copy = copies ? slot : nullptr,
              .slot = 0};
    }
  };
};

}  // namespace moelink::test
