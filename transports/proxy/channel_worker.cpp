#include "transports/proxy/channel_worker.hpp"

#include <algorithm>
#include <atomic>

#include "base/text.hpp"

namespace moelink {
namespace {

constexpr u32 kFarewell = 0;  // the one chunk of kProxyPhase

/// The device whose memory NICs write; the host, if rows are staged there.
Device device_of(const std::vector<PutMemory>& regions) {
  const auto on_device = std::ranges::find_if(regions, [](const PutMemory& m) { return m.device.is_cuda(); });
  return on_device != regions.end() ? on_device->device : Device::host();
}

}  // namespace

ChannelWorker::ChannelWorker(PutTransport& transport, const PutChannel& channel, const PutChannelConfig& config,
                             const PutOptions& options)
    : transport_(transport),
      view_(channel.view()),
      shared_taken_(const_cast<u64*>(view_.ring.taken)),  // NOLINT: read-only for kernels; this is their writer
      shared_sent_(const_cast<u64*>(view_.sent)),         // NOLINT
      shared_arrived_(const_cast<u64*>(view_.arrived)),   // NOLINT
      slots_(view_.ring.slots),
      exchange_(view_.exchange),
      options_(options),
      remote_writes_(device_of(config.regions)),
      peers_(static_cast<std::size_t>(options.num_ranks)) {
  for (const PutMemory& memory : config.regions) regions_.push_back(transport.add_region(memory));
}

Bytes ChannelWorker::keys() const {
  ByteWriter writer;
  writer.u32(static_cast<std::uint32_t>(regions_.size()));
  for (const auto& region : regions_) writer.block(region->key());
  return writer.take();
}

void ChannelWorker::import_keys(int peer, std::span<const std::byte> keys) {
  ByteReader reader(keys);
  const std::size_t count = reader.u32();
  if (count != regions_.size()) {
    throw Error(ErrorCode::mismatch, text("rank ", peer, " opened a channel of ", count, " regions, rank ",
                                          options_.rank, " one of ", regions_.size()));
  }
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  for (std::size_t i = 0; i < count; ++i) entry.regions.push_back(transport_.import_region(peer, reader.block()));
}

bool ChannelWorker::take(Put& put) {
  PutDescriptor& slot = slots_[next_ticket_ % view_.ring.capacity];
  // Step 3 of NOTE [remote visibility].
  if (std::atomic_ref<u64>(slot.mark).load(std::memory_order_acquire) != next_ticket_ + 1) return false;
  put = put_of(slot);
  ++next_ticket_;
  ++num_taken_;
  return true;
}

Put ChannelWorker::put_of(const PutDescriptor& slot) const {
  const PutImmediate immediate = PutImmediate::unpacked(slot.immediate);
  const bool makes_sense = slot.peer < peers_.size() && slot.source_region < regions_.size() &&
                           slot.target_region < peers_[slot.peer].regions.size() && immediate.exchange == exchange_ &&
                           immediate.phase < kProxyPhase && static_cast<i32>(immediate.chunk) < view_.max_chunks;
  if (!makes_sense) {
    throw PutFailure(
        -1, text("a kernel of rank ", options_.rank, " handed over a put to rank ", slot.peer, " (regions ",
                 static_cast<int>(slot.source_region), " to ", static_cast<int>(slot.target_region), ", phase ",
                 immediate.phase, ", chunk ", immediate.chunk, "), which its channel does not have"));
  }
  return {.source = regions_[slot.source_region].get(),
          .source_offset_bytes = slot.source_offset_bytes,
          .target = peers_[slot.peer].regions[slot.target_region].get(),
          .target_offset_bytes = slot.target_offset_bytes,
          .size_bytes = slot.size_bytes,
          .immediate = slot.immediate,
          .token = u64{exchange_} << 8 | immediate.phase};
}

void ChannelWorker::release_taken() {
  std::atomic_ref<u64>(*shared_taken_).store(next_ticket_, std::memory_order_release);
}

void ChannelWorker::note_sent(std::uint64_t token) {
  ++num_sent_;
  const std::size_t phase = token & 0xff;
  const u64 count = ++sent_[phase];
  if (phase < kProxyPhase) std::atomic_ref<u64>(shared_sent_[phase]).store(count, std::memory_order_release);
}

ChannelWorker::Arrival ChannelWorker::note_arrival(int peer, PutImmediate immediate) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  if (immediate.phase == kProxyPhase) {
    num_farewells_ += entry.said_farewell ? 0 : 1;
    entry.said_farewell = true;
    return {};
  }
  const u64 epoch = immediate.epoch_near(entry.epoch);
  const auto where = [&] {
    return text("rank ", peer, " sent chunk ", immediate.chunk, " of phase ", immediate.phase, ", epoch ", epoch,
                ", to rank ", options_.rank);
  };
  if (static_cast<i32>(immediate.chunk) >= view_.max_chunks) {
    throw PutFailure(peer, text(where(), ", whose channel has ", view_.max_chunks, " chunks a phase"));
  }
  // A rank enters an epoch only when it has heard of every other in the one before: one apart is the most.
  if (epoch + 1 < entry.epoch || epoch > entry.epoch + 1 || epoch == 0) {
    throw PutFailure(peer, text(where(), ", which has seen it in epoch ", entry.epoch));
  }
  if (epoch > entry.epoch) entry.epoch = epoch;
  u64* flag =
      shared_arrived_ + (view_.arrival_flag(immediate.phase, peer, static_cast<i32>(immediate.chunk)) - view_.arrived);
  if (*flag >= epoch) throw PutFailure(peer, text(where(), ", a second time"));
  return {flag, epoch};
}

void ChannelWorker::raise(const Arrival& arrival) {
  std::atomic_ref<u64>(*arrival.flag).store(arrival.epoch, std::memory_order_release);
}

Put ChannelWorker::farewell_to(int peer) {
  said_farewell_ = true;
  ++num_taken_;
  return {.target = peers_[static_cast<std::size_t>(peer)].regions.front().get(),
          .immediate = PutImmediate{.exchange = exchange_, .phase = kProxyPhase, .chunk = kFarewell}.packed(),
          .token = u64{exchange_} << 8 | kProxyPhase};
}

}  // namespace moelink
