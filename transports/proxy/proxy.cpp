#include "transports/proxy/proxy.hpp"

#include <bit>
#include <utility>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "transports/gather.hpp"
#include "transports/proxy/put_thread.hpp"
#include "transports/put_group.hpp"
#include "transports/together.hpp"

namespace moelink {
namespace {

constexpr std::size_t kMaxExchanges = PutWork::kMaxExchanges;
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

/// What nobody may free: a thread that is stuck may wake up and use it.
void keep_forever(LeftChannel left) {
  static auto* const kept = new std::vector<LeftChannel>;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  kept->push_back(std::move(left));
}

}  // namespace

PutProxy::PutProxy(std::unique_ptr<PutTransport> transport, PutProxyOptions options)
    : options_(std::move(options)), kind_(transport->kind()), description_(transport->describe()) {
  const bool spins = options_.spin.value_or(std::thread::hardware_concurrency() >= kCoresToSpin);
  thread_ = PutThread::start(std::make_unique<PutWork>(std::move(transport), options_.put), description_, spins,
                             options_.on_failure);
}

PutProxy::~PutProxy() {
  wait_for_farewells(options_.farewell_deadline);
  thread_->end(patience_of_end());
}

void PutProxy::leave(std::unique_ptr<PutChannel> channel, std::shared_ptr<void> regions) noexcept {
  // Ranks that end together find each other in this time, and their memory is free at once.
  constexpr std::chrono::milliseconds kPatience{20};
  channel->is_open_ = false;  // its end is this proxy's affair from here on
  try {
    call_to_end([&](PutWork&) { thread_->part({std::move(channel), std::move(regions)}); });
    wait_for_farewells(kPatience);
    (void)thread_->take_left();
  } catch (const std::exception& error) {
    warn_once(text("the memory of a channel of puts is kept until the process ends: ", error.what()));
    if (channel != nullptr) keep_forever({std::move(channel), std::move(regions)});
  }
}

void PutProxy::wait_for_farewells(std::chrono::milliseconds patience) const {
  const Deadline deadline = Deadline::after(patience);
  while (thread_->is_parting() && !deadline.expired()) std::this_thread::sleep_for(kBetweenLooks);
}

std::unique_ptr<PutChannel> PutProxy::open(Rendezvous& rendezvous, const PutChannelConfig& config) {
  ChannelShape shape{.num_regions = static_cast<i32>(config.regions.size()), .max_chunks = config.max_chunks};
  (void)thread_->take_left();
  std::unique_ptr<PutChannel> channel;
  together(rendezvous, "making a channel of puts", [&] {
    check();
    check_config(config);
    channel.reset(new PutChannel(*this, config, options_.put.num_ranks, static_cast<int>(options_.put.remotes.size())));
    call([&](const PutWork& work) { shape.held = work.held_exchanges(); });
  });
  const std::size_t exchange =
      agree_on_exchange(gather<ChannelShape>(rendezvous, std::span(&shape, 1)), options_.put.rank);
  channel->view_.exchange = static_cast<u32>(exchange);
  try {
    connect(rendezvous, *channel, config);
  } catch (...) {
    take_back(std::move(channel));
    throw;
  }
  channel->is_open_ = true;
  return channel;
}

/// Nobody has put anything: what there is goes without a farewell, on the thread that may touch it.
void PutProxy::take_back(std::unique_ptr<PutChannel> channel) noexcept {
  try {
    call_to_end([&](PutWork& work) { work.worker(channel->view().exchange).reset(); });
  } catch (const std::exception& error) {
    warn_once(text("the memory of a channel of puts is kept until the process ends: ", error.what()));
    keep_forever({std::move(channel), nullptr});
  }
}

/// Registers the regions and exchanges their keys. On return every rank's channel is in its place.
void PutProxy::connect(Rendezvous& rendezvous, const PutChannel& channel, const PutChannelConfig& config) {
  const u32 exchange = channel.view().exchange;
  Bytes keys;
  together(rendezvous, "registering memory for puts", [&] {
    call([&](PutWork& work) {
      work.worker(exchange) = std::make_unique<ChannelWorker>(work.transport(), channel, config, options_.put);
      keys = work.worker(exchange)->keys();
    });
  });
  const std::vector<Bytes> all_keys = gather_bytes(rendezvous, keys);
  together(rendezvous, "importing regions of peers", [&] {
    call([&](PutWork& work) {
      for (const int peer : options_.put.remotes) {
        work.worker(exchange)->import_keys(peer, all_keys[static_cast<std::size_t>(peer)]);
      }
    });
  });
}

void PutProxy::close(u32 exchange) {
  const Deadline deadline = Deadline::after(options_.farewell_deadline);
  bool is_farewell_complete = false;
  while (!is_farewell_complete && !thread_->has_failed() && !deadline.expired()) {
    call_to_end([&](PutWork& work) { is_farewell_complete = work.say_farewells(exchange); });
    if (!is_farewell_complete) std::this_thread::sleep_for(kBetweenLooks);
  }
  call_to_end([&](PutWork& work) { work.forget(exchange, is_farewell_complete); });
}

void PutProxy::abandon() noexcept { thread_->abandon(); }
void PutProxy::check() const { thread_->check(); }
PutHelper PutProxy::helper() noexcept { return thread_->helper(); }

void PutProxy::call(const std::function<void(PutWork&)>& work) { thread_->call(options_.put.deadline, work); }
void PutProxy::call_to_end(const std::function<void(PutWork&)>& work) { thread_->call(patience_of_end(), work); }

std::chrono::milliseconds PutProxy::patience_of_end() const {
  constexpr std::chrono::milliseconds kMost{5'000};
  return std::min(options_.put.deadline, kMost);
}

}  // namespace moelink
