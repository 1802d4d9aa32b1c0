// A rank with a proxy and kernels' functions, for tests.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fault.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "moelink/device/put/hand_over.cuh"
#include "put_rank.hpp"
#include "ranks.hpp"
#include "transports/loopback/put.hpp"
#include "transports/proxy/proxy.hpp"
#include "transports/put_group.hpp"

namespace moelink::test {

using namespace std::chrono_literals;
using Make = std::function<std::unique_ptr<PutTransport>(const PutOptions&)>;

inline constexpr i64 kSlotBytes = 4096;

inline PutOptions options_of(const Rendezvous& meet) {
  PutOptions options{.rank = meet.rank(), .num_ranks = meet.size()};
  for (int peer = 0; peer < meet.size(); ++peer) {
    if (peer != meet.rank()) options.remotes.push_back(peer);
  }
  return options;
}

/// A rank with a proxy, a fault context that the proxy can end, and one channel.
struct ProxyRank {
  ProxyRank(Rendezvous& rendezvous, const Make& make, int most_chunks, int ring_capacity = 0, PutOptions put = {},
            std::chrono::milliseconds farewell = 5s)
      : meet(rendezvous), max_chunks(most_chunks), out(region_bytes()), in(region_bytes()) {
    if (put.remotes.empty()) put = options_of(meet);
    auto transport = make(put);
    connect_puts(meet, *transport);
    proxy = std::make_unique<PutProxy>(
        std::move(transport),
        PutProxyOptions{
            .put = put, .farewell_deadline = farewell, .on_failure = [this](int peer, const std::string& sentence) {
              failure = sentence;
              failed_peer = peer;
              request_abort(record);
            }});
    channel = proxy->open(meet, config(ring_capacity));
    context = {.word = &word, .record = &record, .rank = meet.rank(), .timeout_ns = 20'000'000'000};
  }

  [[nodiscard]] std::size_t region_bytes() const {
    return static_cast<std::size_t>(2 * meet.size() * max_chunks * kSlotBytes);
  }
  [[nodiscard]] PutChannelConfig config(int ring_capacity) {
    return {.regions = {{out.data(), out.size()}, {in.data(), in.size()}},
            .max_chunks = max_chunks,
            .ring_capacity = ring_capacity};
  }
  [[nodiscard]] i64 offset(u32 phase, int rank, int chunk) const {
    return ((static_cast<i64>(phase) * meet.size() + rank) * max_chunks + chunk) * kSlotBytes;
  }
  [[nodiscard]] bool hand_over_chunk(u32 phase, u64 epoch, int peer, int chunk, i64 bytes) {
    return hand_over_block(HostExec(0, 1, nullptr), channel->view(), context,
                           {.peer = peer,
                            .phase = phase,
                            .epoch = epoch,
                            .chunk = chunk,
                            .source_region = 0,
                            .target_region = 1,
                            .source_offset_bytes = offset(phase, peer, chunk),
                            .target_offset_bytes = offset(phase, meet.rank(), chunk),
                            .size_bytes = bytes});
  }

  /// Whom the proxy blamed; `failure` may be read afterwards.
  [[nodiscard]] int blamed() const {
    while (failed_peer == -2) std::this_thread::yield();
    return failed_peer;
  }

  Rendezvous& meet;
  int max_chunks;
  std::vector<std::byte> out;
  std::vector<std::byte> in;
  u64 word = 0;
  FaultRecord record;
  FaultContext context;
  std::atomic<int> failed_peer{-2};
  std::string failure;  // written before failed_peer
  std::unique_ptr<PutProxy> proxy;
  std::unique_ptr<PutChannel> channel;
};

}  // namespace moelink::test
