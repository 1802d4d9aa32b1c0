#include "transports/proxy/proxy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "runtime/thread.hpp"
#include "transports/gather.hpp"
#include "transports/pci_path.hpp"
#include "transports/proxy/channel_worker.hpp"
#include "transports/proxy/idle.hpp"
#include "transports/proxy/nearness.hpp"
#include "transports/put_group.hpp"
#include "transports/together.hpp"

namespace moelink {
namespace {

constexpr std::size_t kMaxExchanges = std::size_t{1} << PutImmediate::kExchangeBits;
/// Puts of one ring, and events of the transport, that one round takes.
constexpr std::size_t kBatch = 64;
/// Puts of one peer that are started already and still kept.
constexpr std::size_t kMostTaken = 1024;
/// Rounds between two looks at the clock.
constexpr u64 kRoundsPerLook = 1024;
constexpr unsigned kCoresToSpin = 8;
constexpr std::chrono::microseconds kBetweenLooks{200};  // of threads that wait for farewells

/// What all ranks must agree on, and the exchanges' numbers that a rank still holds, one bit each.
struct ChannelShape {
  u64 held = 0;
  i32 num_regions = 0;
  i32 max_chunks = 0;
};
static_assert(kMaxExchanges == 64, "ChannelShape::held has a bit for each");

/// The lowest number that is free on every rank.
std::size_t agree_on_exchange(std::span<const ChannelShape> shapes, int rank) {
  const ChannelShape& mine = shapes[static_cast<std::size_t>(rank)];
  u64 held = 0;
  for (std::size_t other = 0; other < shapes.size(); ++other) {
    const auto same = [&](const char* field, i32 here, i32 there) {
      if (here != there) {
        throw Error(ErrorCode::mismatch, text("ranks open different channels: ", field, " is ", here, " on rank ", rank,
                                              ", ", there, " on rank ", other));
      }
    };
    same("the number of regions", mine.num_regions, shapes[other].num_regions);
    same("max_chunks", mine.max_chunks, shapes[other].max_chunks);
    held |= shapes[other].held;
  }
  if (held == ~u64{0}) {
    throw Error(ErrorCode::capacity,
                text("there are ", kMaxExchanges, " channels of puts already, the most; destroy objects first"));
  }
  return static_cast<std::size_t>(std::countr_one(held));
}

void check_config(const PutChannelConfig& config) {
  if (config.regions.empty() || config.regions.size() > 255 || config.max_chunks < 1 ||
      config.max_chunks > (1 << PutImmediate::kChunkBits) || config.ring_capacity < 0) {
    throw Error(ErrorCode::invalid_argument,
                text("a channel of ", config.regions.size(), " regions, ", config.max_chunks, " chunks and a ring of ",
                     config.ring_capacity, " cannot be; expected 1 to 255 regions, 1 to ",
                     1 << PutImmediate::kChunkBits, " chunks"));
  }
}

}  // namespace

PutProxy::PutProxy(std::unique_ptr<PutTransport> transport, PutProxyOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      kind_(transport_->kind()),
      description_(transport_->describe()),
      peers_(static_cast<std::size_t>(options_.put.num_ranks)),
      workers_(kMaxExchanges),
      retired_(kMaxExchanges),
      spins_(options_.spin.value_or(std::thread::hardware_concurrency() >= kCoresToSpin)) {
  thread_ = start_thread(text("moelink-put", options_.put.rank), [this] { run(); });
  keep_near(thread_, pci_path_of(options_.put.device));
}

PutProxy::~PutProxy() {
  wait_for_farewells(options_.farewell_deadline);
  stop_.store(true, std::memory_order_relaxed);
  // No deadline: the thread looks at stop_ each round, and what it works with goes next. It is held up only by a
  // transport that does not return from a call.
  thread_.join();
  workers_.clear();  // regions go before their transport
  for (Leaving& leaving : leaving_) leaving.channel->is_open_ = false;
}

void PutProxy::leave(std::unique_ptr<PutChannel> channel, std::shared_ptr<void> regions) noexcept {
  // Ranks that end together find each other in this time, and their memory is free at once.
  constexpr std::chrono::milliseconds kPatience{20};
  try {
    call([&] {
      leaving_.push_back({std::move(channel), std::move(regions)});
      num_leaving_.store(leaving_.size(), std::memory_order_release);
    });
    wait_for_farewells(kPatience);
    free_what_is_left();
  } catch (const std::exception& error) {
    warn_once(text("the memory of a channel of puts is kept until the process ends: ", error.what()));
    if (channel != nullptr) keep_forever(std::move(channel), std::move(regions));
  }
}

void PutProxy::wait_for_farewells(std::chrono::milliseconds patience) const {
  const Deadline deadline = Deadline::after(patience);
  while (num_leaving_.load(std::memory_order_acquire) != 0 && !deadline.expired()) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void PutProxy::keep_forever(std::unique_ptr<PutChannel> channel, std::shared_ptr<void> regions) {
  channel->is_open_ = false;
  static auto* const kept = new std::vector<Leaving>;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  kept->push_back({std::move(channel), std::move(regions)});
}

/// Farewells to channels that were left, and from the remotes.
void PutProxy::part_from_peers() {
  const bool is_over = has_failed_.load(std::memory_order_relaxed) || is_abandoned_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < leaving_.size();) {
    const u32 exchange = leaving_[i].channel->view().exchange;
    const bool is_complete = !is_over && say_farewells(exchange);
    if (!is_complete && !is_over) {
      ++i;
      continue;
    }
    forget(exchange, is_complete);
    leaving_[i].channel->is_open_ = false;
    const std::scoped_lock lock(left_mutex_);
    left_.push_back(std::move(leaving_[i]));
    leaving_.erase(leaving_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  num_leaving_.store(leaving_.size(), std::memory_order_release);
}

void PutProxy::free_what_is_left() {
  std::vector<Leaving> left;
  const std::scoped_lock lock(left_mutex_);
  left.swap(left_);
}

std::unique_ptr<PutChannel> PutProxy::open(Rendezvous& rendezvous, const PutChannelConfig& config) {
  ChannelShape shape{.num_regions = static_cast<i32>(config.regions.size()), .max_chunks = config.max_chunks};
  free_what_is_left();
  std::unique_ptr<PutChannel> channel;
  together(rendezvous, "making a channel of puts", [&] {
    check();
    check_config(config);
    channel.reset(new PutChannel(*this, config, options_.put.num_ranks, static_cast<int>(options_.put.remotes.size())));
    call([&] { shape.held = held_exchanges(); });
  });
  const std::size_t exchange =
      agree_on_exchange(gather<ChannelShape>(rendezvous, std::span(&shape, 1)), options_.put.rank);
  channel->view_.exchange = static_cast<u32>(exchange);
  try {
    connect(rendezvous, *channel, config);
  } catch (...) {
    // Nobody has put anything: what there is goes without a farewell, on the thread that may touch it.
    call([&] { workers_[exchange].reset(); });
    throw;
  }
  channel->is_open_ = true;
  return channel;
}

/// Registers the regions and exchanges their keys. On return every rank's channel is in its place.
void PutProxy::connect(Rendezvous& rendezvous, const PutChannel& channel, const PutChannelConfig& config) {
  std::unique_ptr<ChannelWorker>& worker = workers_[channel.view().exchange];
  Bytes keys;
  together(rendezvous, "registering memory for puts", [&] {
    call([&] {
      worker = std::make_unique<ChannelWorker>(*transport_, channel, config, options_.put);
      keys = worker->keys();
    });
  });
  const std::vector<Bytes> all_keys = gather_bytes(rendezvous, keys);
  together(rendezvous, "importing regions of peers", [&] {
    call([&] {
      for (const int peer : options_.put.remotes) {
        worker->import_keys(peer, all_keys[static_cast<std::size_t>(peer)]);
      }
    });
  });
}

u64 PutProxy::held_exchanges() const {
  u64 held = 0;
  for (std::size_t exchange = 0; exchange < kMaxExchanges; ++exchange) {
    held |= workers_[exchange] != nullptr || retired_[exchange] ? u64{1} << exchange : 0;
  }
  return held;
}

void PutProxy::check() const {
  if (!has_failed_.load(std::memory_order_acquire)) return;
  const std::scoped_lock lock(mutex_);
  throw *failure_;
}

void PutProxy::call(const std::function<void()>& work) {
  Call one{.work = &work};
  std::unique_lock lock(mutex_);
  calls_.push_back(&one);
  has_calls_.store(true, std::memory_order_release);
  // On the system clock, as ThreadSanitizer of g++ 12 does not know the other's system call. Work that has begun holds
  // the lock: after the wait it is done, or has not begun, and then never will.
  const auto end = std::chrono::system_clock::now() + options_.put.deadline;
  if (!changed_.wait_until(lock, end, [&] { return one.is_done; })) {
    std::erase(calls_, &one);
    throw Error(ErrorCode::timeout, text("the thread that puts for rank ", options_.put.rank, " has not answered for ",
                                         to_string(options_.put.deadline), "; it is stuck in ", description_));
  }
  if (one.thrown != nullptr) std::rethrow_exception(one.thrown);
}

void PutProxy::close(u32 exchange) {
  const Deadline deadline = Deadline::after(options_.farewell_deadline);
  bool is_farewell_complete = false;
  while (!is_farewell_complete && !has_failed_.load(std::memory_order_acquire) && !deadline.expired()) {
    call([&] { is_farewell_complete = say_farewells(exchange); });
    if (!is_farewell_complete) std::this_thread::sleep_for(kBetweenLooks);
  }
  call([&] { forget(exchange, is_farewell_complete); });
}

void PutProxy::forget(u32 exchange, bool is_farewell_complete) {
  retired_[exchange] = !is_farewell_complete;
  for (Peer& peer : peers_) {
    std::erase_if(peer.waiting, [&](const Put& put) { return put.token >> 8 == exchange; });
    peer.next = std::min(peer.next, peer.waiting.size());
  }
  workers_[exchange].reset();
}

/// Whether all puts are sent, and every remote has said farewell. Says it itself once its puts are sent: so nothing of
/// this rank is under way when others hear of it.
bool PutProxy::say_farewells(u32 exchange) {
  ChannelWorker& worker = *workers_[exchange];
  if (worker.has_unsent()) return false;
  if (!worker.has_said_farewell()) {
    for (const int peer : options_.put.remotes) {
      peers_[static_cast<std::size_t>(peer)].waiting.push_back(worker.farewell_to(peer));
    }
    return options_.put.remotes.empty();
  }
  return worker.is_farewell_complete();
}

void PutProxy::run() {
  Idle idle(spins_, options_.put.device.is_host());
  while (!stop_.load(std::memory_order_relaxed)) {
    if (is_helped()) {
      idle.rest();
      continue;
    }
    run_round(idle);
  }
}

void PutProxy::run_round(Idle& idle) {
  std::unique_lock lock(work_mutex_);
  const bool found_call = serve_calls();
  if (!leaving_.empty()) part_from_peers();
  const bool found_work = !has_failed_.load(std::memory_order_relaxed) && work();
  const bool under_way = is_under_way();
  const bool in_use = has_channels();
  lock.unlock();
  idle.step(found_call || found_work, under_way, in_use);
}

/// Whether threads that wait have done the work since the last look, and there is nothing that this one alone does.
bool PutProxy::is_helped() {
  const u64 helps = num_helps_.load(std::memory_order_relaxed);
  const bool is_mine = has_calls_.load(std::memory_order_acquire) || num_leaving_.load(std::memory_order_acquire) != 0;
  return std::exchange(num_helps_seen_, helps) != helps && !is_mine;
}

PutHelper PutProxy::helper() noexcept {
  if (spins_) return {};
  return {.help =
              [](void* proxy) {
                auto& self = *static_cast<PutProxy*>(proxy);
                const std::unique_lock lock(self.work_mutex_, std::try_to_lock);
                if (!lock.owns_lock() || self.has_failed_.load(std::memory_order_relaxed)) return false;
                self.num_helps_.fetch_add(1, std::memory_order_relaxed);
                return self.work();
              },
          .proxy = this};
}

bool PutProxy::serve_calls() {
  if (!has_calls_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock lock(mutex_);
  for (Call* one : calls_) {
    try {
      (*one->work)();
    } catch (...) {
      one->thrown = std::current_exception();
    }
    one->is_done = true;
  }
  calls_.clear();
  has_calls_.store(false, std::memory_order_relaxed);
  changed_.notify_all();
  return true;
}

/// One round. Whether there was anything to do.
bool PutProxy::work() {
  try {
    const bool took = take_puts();
    const bool started = start_puts();
    const bool heard = take_events();
    if (++num_rounds_ % kRoundsPerLook == 0) look_at_clock();
    return took || started || heard;
  } catch (const PutFailure& failure) {
    fail(failure);
  } catch (const std::exception& error) {
    fail(PutFailure(-1, text("puts of rank ", options_.put.rank, " failed: ", error.what())));
  }
  return true;
}

bool PutProxy::take_puts() {
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
bool PutProxy::start_puts() {
  bool started_any = false;
  for (const int rank : options_.put.remotes) {
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

bool PutProxy::take_events() {
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

ChannelWorker& PutProxy::worker_of(int peer, PutImmediate immediate) {
  const auto& worker = workers_[immediate.exchange];
  if (worker == nullptr) {
    throw PutFailure(peer, text("rank ", peer, " put something for exchange ", immediate.exchange, ", which rank ",
                                options_.put.rank, retired_[immediate.exchange] ? " has left" : " does not have"));
  }
  return *worker;
}

void PutProxy::look_at_clock() {
  const Clock::time_point now = Clock::now();
  for (const int rank : options_.put.remotes) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.is_busy() || peer.num_sent != peer.num_sent_before || peer.since == Clock::time_point()) {
      peer.num_sent_before = peer.num_sent;
      peer.since = now;
    } else if (now - peer.since > options_.put.deadline) {
      throw PutFailure(rank, text("rank ", rank, " has taken none of ",
                                  peer.num_started - peer.num_sent + peer.waiting.size() - peer.next, " puts of rank ",
                                  options_.put.rank, " for ", to_string(options_.put.deadline), " over ", description_,
                                  ": it is stopped, or the way to it is"));
    }
  }
}

bool PutProxy::has_channels() const {
  return std::ranges::any_of(workers_, [](const auto& worker) { return worker != nullptr; });
}

bool PutProxy::is_under_way() const {
  return !has_failed_.load(std::memory_order_relaxed) && std::ranges::any_of(options_.put.remotes, [&](int rank) {
    return peers_[static_cast<std::size_t>(rank)].is_busy();
  });
}

void PutProxy::fail(const PutFailure& failure) {
  {
    const std::scoped_lock lock(mutex_);
    failure_.emplace(failure);
  }
  has_failed_.store(true, std::memory_order_release);
  if (options_.on_failure) options_.on_failure(failure.peer(), failure.sentence());
}

}  // namespace moelink
