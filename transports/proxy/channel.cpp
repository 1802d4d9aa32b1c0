#include "transports/proxy/channel.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"
#include "moelink/protocol/carver.hpp"
#include "moelink/stream.hpp"
#include "transports/proxy/proxy.hpp"

namespace moelink {
namespace {

constexpr i64 kMostSlots = 4096;
/// Words that different threads write lie on lines of their own.
constexpr i64 kWordsPerLine = 16;

/// What host and device share.
struct SharedLayout {
  Place<PutDescriptor> slots;
  Place<u64> taken;
  Place<u64> sent;
  Place<u64> arrived;
  i64 total_bytes = 0;

  static SharedLayout of(i64 capacity, i64 num_flags) {
    SharedLayout layout;
    Carver carver;
    layout.slots = carver.take<PutDescriptor>(capacity);
    layout.taken = carver.take<u64>(1);
    layout.sent = carver.take<u64>(kPutPhases);
    layout.arrived = carver.take<u64>(num_flags);
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

/// What only the device touches.
struct OwnLayout {
  Place<u64> next_ticket;
  Place<u64> taken_seen;
  Place<u64> handed_over;
  i64 total_bytes = 0;

  static OwnLayout of() {
    OwnLayout layout;
    Carver carver;
    layout.next_ticket = carver.take<u64>(kWordsPerLine);
    layout.taken_seen = carver.take<u64>(kWordsPerLine);
    layout.handed_over = carver.take<u64>(kPutPhases);
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

i64 capacity_of(const PutChannelConfig& config, int num_remotes) {
  if (config.ring_capacity != 0) return config.ring_capacity;
  return std::clamp(i64{config.max_chunks} * std::max(num_remotes, 1), i64{16}, kMostSlots);
}

i64 num_flags_of(const PutChannelConfig& config, int num_ranks) {
  return i64{kPutPhases} * num_ranks * config.max_chunks;
}

Buffer zeroed(Device device, i64 size_bytes) {
  Buffer buffer(device, static_cast<std::size_t>(size_bytes));
  const Stream stream(device, {.num_threads = 1});
  fill_bytes(buffer.data(), 0, buffer.size_bytes(), stream);
  stream.synchronize();
  return buffer;
}

/// A proxy that is stuck may wake up and write flags.
void keep_forever(PinnedBuffer memory) {
  static auto* const kept = new std::vector<PinnedBuffer>;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace

PutChannel::Memory PutChannel::memory(const PutChannelConfig& config, int num_ranks, int num_remotes) {
  const i64 capacity = capacity_of(config, num_remotes);
  return {.shared_bytes = SharedLayout::of(capacity, num_flags_of(config, num_ranks)).total_bytes,
          .device_bytes = OwnLayout::of().total_bytes};
}

PutChannel::PutChannel(PutProxy& proxy, const PutChannelConfig& config, int num_ranks, int num_remotes)
    : proxy_(proxy),
      shared_(config.device, static_cast<std::size_t>(memory(config, num_ranks, num_remotes).shared_bytes)),
      own_(zeroed(config.device, memory(config, num_ranks, num_remotes).device_bytes)) {
  const i64 capacity = capacity_of(config, num_remotes);
  const SharedLayout shared = SharedLayout::of(capacity, num_flags_of(config, num_ranks));
  const OwnLayout own = OwnLayout::of();
  view_.ring = {.slots = shared.slots.in(shared_.data()),
                .next_ticket = own.next_ticket.in(own_.data()),
                .taken = shared.taken.in(shared_.data()),
                .taken_seen = own.taken_seen.in(own_.data()),
                .capacity = static_cast<u64>(capacity)};
  if (config.device.is_host()) view_.helper = proxy.helper();
  view_.num_ranks = num_ranks;
  view_.max_chunks = config.max_chunks;
  view_.handed_over = own.handed_over.in(own_.data());
  view_.sent = shared.sent.in(shared_.data());
  view_.arrived = shared.arrived.in(shared_.data());
}

PutChannel::~PutChannel() {
  if (!is_open_) return;
  try {
    proxy_.close(view_.exchange);
  } catch (const std::exception& error) {
    warn_once(text("closing a channel of puts failed: ", error.what()));
    keep_forever(std::move(shared_));
  }
}

}  // namespace moelink
