// Dispatch of many tokens over NVLink, in one launch of resident blocks (or one that sends and one that receives).
//
//  1. Route (nvlink_prefill_route.cuh), all blocks: three grid barriers; headers leave after the first. A launch that
//     reuses the routing only sends headers.
//  2. Wait for all headers, all blocks, if the launch receives: from then on each knows where every row goes. This is
//     done between the halves of the last barrier.
//  3. Send, blocks [0, num_senders): rows to their slots elsewhere, and on the way own rows to their places here.
//  4. Receive, all blocks, as soon as they have nothing to send: own tokens that did not go anywhere, and what arrives.
//
// 3 and 4 are one stream of rows through the ring of a block (primitives/row_pump.cuh): nothing drains in between.
//
// Why sending waits for headers in a launch that also receives: a token that goes elsewhere is read once instead of
// twice (2 GPUs, 4096 tokens per rank, H = 7168, k = 8: 646 MB of memory traffic instead of 705, at 160 us of link),
// and the ranks' headers cross within 2 us. A launch that only sends waits for nobody.
//
// Progress: each step waits for earlier steps only, of any rank; blocks run them in order. The grid must be resident.
//
// Ordering: docs/nvlink.md, and each part's own file. Own tokens' rows are placed by one block each: by the sender that
// carries the token (PrefillRows::carrier), or by the one that drew its unit.
//
// Memory owned: block scratch (NvlinkPrefillScratch); LocalDispatchArgs::block_counts, grid_barrier; NvlinkTables.
#pragma once

#include "moelink/device/moe/nvlink_prefill_route.cuh"
#include "moelink/device/moe/nvlink_prefill_rows.cuh"
#include "moelink/device/moe/relay.cuh"

namespace moelink {

struct NvlinkPrefill {
  using Spec = NvlinkDispatchSpec;
  using Args = NvlinkDispatchArgs;
  static constexpr const char* kName = "NvlinkPrefill";
  static constexpr const char* kHeader = "moelink/device/moe/nvlink_prefill.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (is_relay(ex, spec, args.remote)) return relay_dispatch(ex, spec, args);
    run_block(beside_relay(ex, spec, args.remote), spec, args);
  }

 private:
  template <class Exec, class S>
  MOELINK_DEVICE static void run_block(const Exec& ex, S spec, const Args& args) {
    const bool keeps = ex.block() == 0;
    NvlinkEpoch epoch(args.tables, args.sends != 0 ? NvlinkPhase::dispatch_send : NvlinkPhase::dispatch_receive,
                      args.receives != 0 ? NvlinkPhase::dispatch_receive : NvlinkPhase::dispatch_send, keeps);
    epoch.arrive();
    if (keeps && ex.thread() == 0 && !epoch.is_broken()) epoch.check_order(args.local.fault);
    const NvlinkPrefillScratch at(spec(), args.local.ring_bytes);
    u8* scratch = static_cast<u8*>(ex.scratch());
    SourceHeaders<S> headers(spec, scratch, 0);
    const Places<S> places(spec, args, scratch, 0);

    const bool routes = args.sends != 0 && args.format.reuse_routing == 0;
    const i32 given_tokens = routes ? load_token_count(args.local) : *args.local.num_tokens_snapshot;
    const i32 num_tokens = clamp_token_count(args.local, given_tokens);
    bool good = !epoch.is_broken();
    if (good && args.sends != 0) {
      good = Remotes<S>(spec, args.remote).wait_until_free(ex, args.local.fault, kDispatchPuts, epoch.value());
    }
    const PrefillRoute<Exec, S> route(spec, args, epoch.value(), num_tokens, scratch, at.route);
    u64 last_barrier = 0;
    if (routes && good) {
      good = route.begin(ex, last_barrier);
      if (good && keeps && ex.thread() == 0) publish_token_count(args.local, given_tokens, num_tokens);
    } else if (args.sends != 0 && keeps && good) {
      announce_again(ex, spec, args, epoch.value(), num_tokens);
    }
    if (good && args.receives != 0) good = learn_places(ex, spec, args, epoch.value(), headers, places);
    if (routes && good) good = route.finish(ex, last_barrier);
    if (good) {
      PrefillRows<Exec, S> rows(ex, spec, args, epoch.value(), num_tokens, headers, places,
                                reinterpret_cast<i32*>(scratch + at.send_lists),
                                reinterpret_cast<i32*>(scratch + at.receive_lists));
      rows.make_lists(ex);
      RowPump<Exec, S> pump(spec, targets(spec, args), at.pump, scratch, args.local.ring_bytes);
      pump.run(ex, rows);
      if (args.receives != 0) mark_pads(ex, spec, args, places);
      good = !ex.sync_block_or(rows.failed());
    }
    if (!good && ex.thread() == 0) epoch.break_off();
    if (!keeps) return;
    if (!good) {
      if (args.receives != 0) publish_nothing(ex, args, places);
    } else if (ex.thread() == 0) {
      epoch.complete();
    }
  }

  template <class S>
  MOELINK_DEVICE static RowTargets targets(S spec, const Args& args) {
    return {.rows = static_cast<u8*>(args.local.rows),
            .row_stride_bytes = args.local.row_stride_bytes,
            .row_scales = static_cast<u8*>(args.local.row_scales),
            .streaming = is_streaming(spec, args.local),
            .tensor_scale = args.local.tensor_scale};
  }

  /// By one block: the headers of a call whose slots are those of the last. Nobody reads its counts of entries.
  template <class Exec, class S>
  MOELINK_DEVICE static void announce_again(const Exec& ex, S spec, const Args& args, u64 epoch, i32 num_tokens) {
    send_headers(ex, spec, args, epoch, [&](i32 rank, i32 word) -> u32 {
      if (word == DispatchHeader::kNumSlots) return static_cast<u32>(args.tables.num_sent[rank]);
      if (word == DispatchHeader::kNumTokens) return static_cast<u32>(num_tokens);
      if (word != DispatchHeader::kFormat) return 0;
      return Slots<S>(spec, args).format_to(rank, args.format).packed();
    });
    if (!spec().has_remotes) return;
    ex.sync_block();
    put_remote_headers(ex, spec, args, epoch);
  }

  /// By all blocks: waits for headers; then every block knows the places, and block 0 says so to whoever runs next.
  template <class Exec, class S>
  MOELINK_DEVICE static bool learn_places(const Exec& ex, S spec, const Args& args, u64 epoch,
                                          SourceHeaders<S>& headers, const Places<S>& places) {
    u32 clamped = 0;
    if (ex.block() == 0 && args.remote.relayed == nullptr) relay_remote_headers(ex, spec, args, epoch);
    if (!headers.wait(ex, args, epoch, clamped)) return false;
    if (args.format.reuse_routing != 0) return true;
    if (ex.warp() == 0) places.make(ex);
    ex.sync_block();
    if (ex.block() != 0) return true;
    const u32 dropped = publish_places(ex, args, places);
    for (i32 group = ex.thread(); group < places.num_groups; group += ex.num_threads()) {
      args.tables.num_received[group] = headers.num_slots(group);
      args.tables.source_tokens[group] = headers.num_tokens(group);
    }
    if (ex.sync_block_or((dropped | clamped) != 0)) {
      u32* sum = reinterpret_cast<u32*>(static_cast<u8*>(ex.scratch()) + SourceScratch(spec(), 0).sum);
      report_block_sum(ex, &args.local.status->rows_over_capacity, dropped, sum);
      report_block_sum(ex, &args.local.status->peer_counts_clamped, clamped, sum);
    }
    return true;
  }

  /// By the warps that do not move rows, by all if all do.
  template <class Exec, class S>
  MOELINK_DEVICE static void mark_pads(const Exec& ex, S spec, const Args& args, const Places<S>& places) {
    const i32 movers = RowPump<Exec, S>::busy_warps(ex, spec);
    const i32 busy_warps = movers < ex.num_warps() ? movers : 0;
    if (args.format.reuse_routing == 0) {
      fill_pads_of_places(ex, spec, args, places, busy_warps);
    } else {
      clear_pads_again(ex, spec, args, places, busy_warps);
    }
  }
};

}  // namespace moelink
