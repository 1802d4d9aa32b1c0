// Kernels that exchange headers and nothing else: what the protocol needs of combine, and what dispatch waits for
// first.
#pragma once

#include "moelink/device/moe/nvlink_header.cuh"
#include "moelink/device/moe/nvlink_places.cuh"
#include "moelink/device/sync/tagged_word.cuh"

namespace moelink::test {

/// Combine without rows: every rank signals every other. `waits` off breaks rule 3, to show that tests notice.
template <bool kWaits>
struct CombineHeadersOf {
  using Spec = NvlinkDispatchSpec;
  using Args = NvlinkDispatchArgs;

  template <class Exec, class S>
  static void run(const Exec& ex, S spec, const Args& args) {
    NvlinkEpoch epoch(args.tables, NvlinkPhase::combine_send, NvlinkPhase::combine_receive, ex.block() == 0);
    epoch.arrive();
    if (ex.block() != 0) return;
    epoch.check_order(args.local.fault);
    const u32 tag = tag_of(epoch.value());
    const auto lines = [&](i32 holder, i32 source) {
      return args.window.template at<WordPair>(holder, args.layout.combine_headers.offset_bytes, spec().num_ranks) +
             source * (CombineHeader::kWords / 2);
    };
    for (i32 peer = ex.thread(); peer < spec().num_ranks; peer += ex.num_threads()) {
      st_line_sys_pair(lines(peer, args.window.rank), {tagged(0, tag), tagged(0, tag)});
    }
    bool arrived = true;
    for (i32 peer = ex.thread(); kWaits && arrived && peer < spec().num_ranks; peer += ex.num_threads()) {
      const WaitFor what{.phase = FaultPhase::combine_receive, .peer = peer, .epoch = epoch.value(), .expected = tag};
      arrived = wait_until(args.local.fault, what,
                           [&](u64&) { return carry(ld_line_sys_pair(lines(args.window.rank, peer)), tag); });
    }
    if (arrived) epoch.complete();
  }
};
using CombineHeaders = CombineHeadersOf<true>;

/// Dispatch without rows: source s announces args.local.num_tokens slots and s + e + 1 entries for each expert e.
struct DispatchHeaders {
  using Spec = NvlinkDispatchSpec;
  using Args = NvlinkDispatchArgs;

  template <class Exec, class S>
  static void run(const Exec& ex, S spec, const Args& args) {
    NvlinkEpoch epoch(args.tables, NvlinkPhase::dispatch_send, NvlinkPhase::dispatch_receive, ex.block() == 0);
    epoch.arrive();
    const bool keeps = ex.block() == 0;
    SourceHeaders<S> headers(spec, ex.scratch(), 0);
    Places<S> places(spec, args, ex.scratch(), 0);
    if (keeps) {
      epoch.check_order(args.local.fault);
      send_headers(ex, spec, args, epoch.value(), [&](i32 to, i32 word) -> u32 {
        const i32 source = args.window.rank / spec().tp_size;
        const i32 first = first_expert_of(to, spec().num_experts, spec().num_ranks);
        const i32 end = first_expert_of(to + 1, spec().num_experts, spec().num_ranks);
        if (word == DispatchHeader::kNumSlots) return static_cast<u32>(args.local.num_tokens);
        if (word == DispatchHeader::kFormat) return args.format.packed();
        if (word == DispatchHeader::kHash) return static_cast<u32>(args.num_senders);  // what the test says it is
        const i32 expert = first + word - DispatchHeader::kCounts;
        return word >= DispatchHeader::kCounts && expert < end ? source + expert + 1 : 0;
      });
      put_remote_headers(ex, spec, args, epoch.value());
      relay_remote_headers(ex, spec, args, epoch.value());
    }
    u32 clamped = 0;
    if (!headers.wait(ex, args, epoch.value(), clamped)) {
      if (keeps) publish_nothing(ex, args, places);
      return;
    }
    places.make(ex);
    if (!keeps) return;
    report(&args.local.status->peer_counts_clamped, clamped);
    publish_places(ex, args, places);
    epoch.complete();
  }
};

}  // namespace moelink::test
