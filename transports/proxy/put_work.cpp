#include "transports/proxy/put_work.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/deadline.hpp"
#include "base/text.hpp"

namespace moelink {
namespace {

/// Puts of one ring, and events of the transport, that one round takes.
constexpr std::size_t kBatch = 64;
/// Puts of one peer that are started already and still kept.
constexpr std::size_t kMostTaken = 1024;
/// Rounds between two looks at the clock.
constexpr u64 kRoundsPerLook = 1024;

}  // namespace

PutWork::PutWork(std::unique_ptr<PutTransport> transport, PutOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      peers_(static_cast<std::size_t>(options_.num_ranks)),
      workers_(kMaxExchanges),
      retired_(kMaxExchanges) {}

bool PutWork::round() {
  const bool took = take_puts();
  const bool started = start_puts();
  const bool heard = take_events();
  if (++num_rounds_ % kRoundsPerLook == 0) look_at_clock();
  return took || started || heard;
}

bool PutWork::take_puts() {
  bool took_any = false;
  for (const auto& worker : workers_) {
    if (worker == nullptr) continue;
    Put put;
    std::size_t count = 0;
    for (; count < kBatch && worker->take(put); ++count) {
      peers_[static_cast<std::size_t>(put.target->peer())].waiting.push_back(put);
    }
    if (count != 0) worker->release_taken();
    took_any = took_any || count != 0;
  }
  return took_any;
}

/// Each peer has a queue of its own, so that one that is slow holds up nobody else.
bool PutWork::start_puts() {
  bool started_any = false;
  for (const int rank : options_.remotes) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer.next == peer.waiting.size()) continue;
    const std::size_t count = transport_->put(std::span(peer.waiting).subspan(peer.next));
    peer.next += count;
    peer.num_started += count;
    started_any = started_any || count != 0;
    if (peer.next == peer.waiting.size() || peer.next > kMostTaken) {
      peer.waiting.erase(peer.waiting.begin(), peer.waiting.begin() + static_cast<std::ptrdiff_t>(peer.next));
      peer.next = 0;
    }
  }
  return started_any;
}

bool PutWork::take_events() {
  std::array<PutEvent, kBatch> events;
  std::array<ChannelWorker::Arrival, kBatch> arrivals;
  const std::size_t count = transport_->poll(events);
  std::size_t num_arrivals = 0;
  const RemoteWrites* to_flush = nullptr;
  for (const PutEvent& event : std::span(events).first(count)) {
    if (event.kind == PutEvent::Kind::sent) {
      ++peers_[static_cast<std::size_t>(event.peer)].num_sent;
      // The channel may have gone, if its deadline passed with puts under way.
      if (const auto& worker = workers_[event.token >> 8]) worker->note_sent(event.token);
      continue;
    }
    const PutImmediate immediate = PutImmediate::unpacked(event.immediate);
    // A late farewell to a channel that could not wait for it.
    if (immediate.phase == kProxyPhase && retired_[immediate.exchange]) continue;
    ChannelWorker& worker = worker_of(event.peer, immediate);
    const ChannelWorker::Arrival arrival = worker.note_arrival(event.peer, immediate);
    if (arrival.flag == nullptr) continue;
    arrivals[num_arrivals++] = arrival;
    if (worker.remote_writes().need_flush()) to_flush = &worker.remote_writes();
  }
  // Step 5 of NOTE [remote visibility]: one flush for all of them.
  if (to_flush != nullptr) to_flush->flush();
  for (const auto& arrival : std::span(arrivals).first(num_arrivals)) ChannelWorker::raise(arrival);
  return count != 0;
}

ChannelWorker& PutWork::worker_of(int peer, PutImmediate immediate) {
  const auto& worker = workers_[immediate.exchange];
  if (worker == nullptr) {
    throw PutFailure(peer, text("rank ", peer, " put something for exchange ", immediate.exchange, ", which rank ",
                                options_.rank, retired_[immediate.exchange] ? " has left" : " does not have"));
  }
  return *worker;
}

void PutWork::look_at_clock() {
  const Clock::time_point now = Clock::now();
  for (const int rank : options_.remotes) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.is_busy() || peer.num_sent != peer.num_sent_before || peer.since == Clock::time_point()) {
      peer.num_sent_before = peer.num_sent;
      peer.since = now;
    } else if (now - peer.since > options_.deadline) {
      throw PutFailure(rank, text("rank ", rank, " has taken none of ",
                                  peer.num_started - peer.num_sent + peer.waiting.size() - peer.next, " puts of rank ",
                                  options_.rank, " for ", to_string(options_.deadline), " over ",
                                  transport_->describe(), ": it is stopped, or the way to it is"));
    }
  }
}

bool PutWork::has_channels() const {
  return std::ranges::any_of(workers_, [](const auto& worker) { return worker != nullptr; });
}

bool PutWork::is_under_way() const {
  return std::ranges::any_of(options_.remotes,
                             [&](int rank) { return peers_[static_cast<std::size_t>(rank)].is_busy(); });
}

u64 PutWork::held_exchanges() const {
  u64 held = 0;
  for (std::size_t exchange = 0; exchange < kMaxExchanges; ++exchange) {
    held |= workers_[exchange] != nullptr || retired_[exchange] ? u64{1} << exchange : 0;
  }
  return held;
}

bool PutWork::say_farewells(u32 exchange) {
  ChannelWorker& worker = *workers_[exchange];
  if (worker.has_unsent()) return false;
  if (!worker.has_said_farewell()) {
    for (const int peer : options_.remotes) {
      peers_[static_cast<std::size_t>(peer)].waiting.push_back(worker.farewell_to(peer));
    }
    return options_.remotes.empty();
  }
  return worker.is_farewell_complete();
}

void PutWork::forget(u32 exchange, bool is_farewell_complete) {
  retired_[exchange] = !is_farewell_complete;
  for (Peer& peer : peers_) {
    std::erase_if(peer.waiting, [&](const Put& put) { return put.token >> 8 == exchange; });
    peer.next = std::min(peer.next, peer.waiting.size());
  }
  workers_[exchange].reset();
}

}  // namespace moelink
