// The block that looks at what the proxy writes, so that no other does.
//
// NOTE [relay]. The proxy's words are in memory of the host. Looks at one of them from a GPU are served one after the
// other, about half a microsecond each for the whole device, and slow the proxy down, which writes the same line. So in
// a launch with remotes on a GPU the last block works on nothing. It waits for the host's words and repeats them in the
// device's memory, where all others look, which take the grid for one block smaller (beside_relay()):
//  1. that all puts of earlier launches are sent, so that this phase may pack (RemoteArgs::free);
//  2. dispatch: the headers of remotes, as lines where a peer would have stored them;
//  3. that a chunk is here (RemoteArgs::relayed), for every chunk that this launch waits for.
// Order: the payload's writer releases, through the proxy, a flag that the relay acquires at system scope; its release
// at gpu scope then covers the payload as well (a release covers what its thread has observed), for whoever acquires
// the repeated flag on this device. Steps 5 and 6 of NOTE [remote visibility] (put/hand_over.cuh) have one hand more.
// Progress: it waits for the proxy and for other ranks alone, never for a block of its launch, and like these it is
// resident. After a fault it leaves; whoever waits for what it did not repeat notices the fault. It ends with the last
// chunk, before the blocks that wait for it.
// Where it does not pay there is none (RemoteArgs::relayed is null), and blocks look at the proxy's words themselves:
// on the host, and where a launch has one block.
#pragma once

#include "moelink/device/moe/nvlink_header.cuh"
#include "moelink/device/moe/remotes.cuh"

namespace moelink {

/// Executors of the blocks that work: all but the relay.
template <class Exec>
class BesideRelay : public Exec {
 public:
  MOELINK_DEVICE BesideRelay(const Exec& ex, int num_relays) : Exec(ex), num_relays_(num_relays) {}
  MOELINK_DEVICE int num_blocks() const { return Exec::num_blocks() - num_relays_; }

 private:
  int num_relays_;
};

template <class Exec, class S>
MOELINK_DEVICE auto beside_relay(const Exec& ex, S spec, const RemoteArgs& remote) {
#if MOELINK_ON_DEVICE
  (void)spec;
  if constexpr (!S{}().has_remotes) {
    (void)remote;
    return ex;
  } else {
    return BesideRelay<Exec>(ex, remote.relayed != nullptr ? 1 : 0);
  }
#else
  return BesideRelay<Exec>(ex, spec().has_remotes && remote.relayed != nullptr ? 1 : 0);
#endif
}

template <class Exec, class S>
MOELINK_DEVICE bool is_relay(const Exec& ex, S spec, const RemoteArgs& remote) {
  return spec().has_remotes && remote.relayed != nullptr && ex.block() == ex.num_blocks() - 1;
}

/// The relay of a launch of dispatch.
template <class Exec, class S>
MOELINK_DEVICE void relay_dispatch(const Exec& ex, S spec, const NvlinkDispatchArgs& args) {
  NvlinkEpoch epoch(args.tables, args.sends != 0 ? NvlinkPhase::dispatch_send : NvlinkPhase::dispatch_receive,
                    args.receives != 0 ? NvlinkPhase::dispatch_receive : NvlinkPhase::dispatch_send, false);
  epoch.arrive();
  if (epoch.is_broken()) return;
  const Remotes<S> remotes(spec, args.remote);
  if (args.sends != 0 && !remotes.relay_free(ex, args.local.fault, kDispatchPuts, epoch.value())) return;
  if (args.receives == 0) return;
  if (ex.sync_block_or(!relay_remote_headers(ex, spec, args, epoch.value()))) return;
  remotes.relay_chunks(ex, args.local.fault, kDispatchPuts, epoch.value(), [&](i32 source) {
    static_assert(DispatchHeader::kNumSlots == 0);
    const WordPair head = ld_line_sys_pair(header_lines(spec, args, args.window.rank, source));
    return static_cast<i32>(min_of(data_of(head.first), static_cast<u32>(args.shape.max_tokens)));
  });
}

/// The relay of a launch of combine.
template <class Exec, class S>
MOELINK_DEVICE void relay_combine(const Exec& ex, S spec, const NvlinkCombineArgs& args) {
  NvlinkEpoch epoch(args.tables, args.sends != 0 ? NvlinkPhase::combine_send : NvlinkPhase::combine_receive,
                    args.receives != 0 ? NvlinkPhase::combine_receive : NvlinkPhase::combine_send, false);
  epoch.arrive();
  const i32 own_group = args.window.rank / spec().tp_size;
  if (epoch.is_broken() || args.tables.num_received[own_group] == NvlinkTables::kNoDispatch) return;
  const Remotes<S> remotes(spec, args.remote);
  if (args.sends != 0 && !remotes.relay_free(ex, args.fault, kCombinePuts, epoch.value())) return;
  if (args.receives == 0) return;
  remotes.relay_chunks(ex, args.fault, kCombinePuts, epoch.value(),
                       [&](i32 rank) { return args.tables.num_sent[rank]; });
}

}  // namespace moelink
