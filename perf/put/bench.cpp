#include "perf/put/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "moelink/error.hpp"
#include "perf/common/random.hpp"
#include "perf/common/ranks.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLineBytes = 256;
/// Bytes that one measurement moves at most, and all slots together hold.
constexpr std::size_t kMostMoved = std::size_t{2} << 30;
constexpr std::size_t kMostHeld = std::size_t{256} << 20;
constexpr std::chrono::seconds kPatience{60};

double us_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

int peer_of(const Communicator& communicator) {
  if (communicator.size() % 2 != 0) {
    throw UsageError(
        fmt::format("put_perf measures pairs of ranks, and there are {}; start an even number", communicator.size()));
  }
  return communicator.rank() ^ 1;
}

std::byte byte_of(std::uint64_t seed, std::size_t index) {
  return static_cast<std::byte>((seed + index * 0x9e3779b97f4a7c15) >> 29);
}

}  // namespace

PutBench::PutBench(const Communicator& communicator, const PutFlags& flags, const std::string& transport,
                   std::size_t most_bytes)
    : communicator_(communicator),
      flags_(flags),
      peer_(peer_of(communicator)),
      starts_(communicator.rank() % 2 == 0),
      slot_bytes_((most_bytes + kLineBytes) / kLineBytes * kLineBytes),
      num_slots_(std::clamp<std::size_t>(kMostHeld / slot_bytes_, 1, static_cast<std::size_t>(flags.depth))),
      memory_(2 * num_slots_ * slot_bytes_),
      puts_(communicator, memory_, {.transport = transport, .depth = std::max(flags.depth, 2)}) {
  for (std::size_t i = 0; i < memory_.size() / 2; ++i) memory_[i] = byte_of(1, i);  // zeros might move faster
}

int PutBench::iterations_of(std::size_t size_bytes) const {
  const std::size_t most = kMostMoved / std::max<std::size_t>(size_bytes, 1);
  return static_cast<int>(std::clamp<std::size_t>(most, 1, static_cast<std::size_t>(flags_.iterations)));
}

PutResult PutBench::run(std::size_t size_bytes) {
  const int iterations = iterations_of(size_bytes);
  PutResult result;
  std::vector<double> half_trips;
  communicator_.barrier();
  ping_pong(size_bytes, std::min(flags_.warmup, iterations), nullptr);
  ping_pong(size_bytes, iterations, &half_trips);
  result.latency_us = percentiles(slowest_of_ranks(communicator_, half_trips));
  communicator_.barrier();
  const double seconds = slowest_of_ranks(communicator_, {stream_seconds(size_bytes, iterations)}).front();
  result.bandwidth_gbps = static_cast<double>(size_bytes) * iterations / seconds / 1e9;
  result.million_puts = iterations / seconds / 1e6;
  for (int round = 0; round < flags_.check; ++round) {
    communicator_.barrier();
    const std::int64_t wrong = check_round(size_bytes, static_cast<std::uint64_t>(round));
    result.wrong = result.wrong.value_or(0) + sum_over_ranks(communicator_, wrong);
  }
  return result;
}

/// One there, one back. Both ranks take times; that of the one which starts is the round trip.
void PutBench::ping_pong(std::size_t size_bytes, int count, std::vector<double>* half_trips_us) {
  for (int i = 0; i < count; ++i) {
    const Clock::time_point start = Clock::now();
    if (starts_) put(0, size_bytes);
    wait_arrived(1);
    if (!starts_) put(0, size_bytes);
    if (half_trips_us != nullptr) half_trips_us->push_back(starts_ ? us_between(start, Clock::now()) / 2 : 0);
    wait_sent(num_put_);
  }
}

/// Many one way, as many in flight as the depth allows, then a word that all are there.
double PutBench::stream_seconds(std::size_t size_bytes, int count) {
  const Clock::time_point start = Clock::now();
  if (starts_) {
    for (int i = 0; i < count; ++i) {
      if (num_put_ >= num_slots_) wait_sent(num_put_ + 1 - num_slots_);
      put(static_cast<std::size_t>(i) % num_slots_, size_bytes);
    }
    wait_arrived(1);
  } else {
    wait_arrived(static_cast<std::uint64_t>(count));
    put(0, 0);
  }
  const double seconds = us_between(start, Clock::now()) / 1e6;
  wait_sent(num_put_);
  return seconds;
}

std::int64_t PutBench::check_round(std::size_t size_bytes, std::uint64_t round) {
  const auto seed_of = [&](int rank) { return derived_seed(round, static_cast<std::uint64_t>(rank)); };
  const std::size_t slot = round % num_slots_;
  std::byte* mine = memory_.data() + slot * slot_bytes_;
  const std::byte* theirs = memory_.data() + (num_slots_ + slot) * slot_bytes_;
  for (std::size_t i = 0; i < size_bytes; ++i) mine[i] = byte_of(seed_of(communicator_.rank()), i);
  put(slot, size_bytes);
  wait_arrived(1);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < size_bytes; ++i) wrong += theirs[i] != byte_of(seed_of(peer_), i) ? 1 : 0;
  wait_sent(num_put_);
  return wrong;
}

void PutBench::put(std::size_t slot, std::size_t size_bytes) {
  const auto immediate = static_cast<std::uint32_t>(num_put_);
  while (!puts_.put(peer_, slot * slot_bytes_, (num_slots_ + slot) * slot_bytes_, size_bytes, immediate, num_put_)) {
    poll();
  }
  ++num_put_;
}

void PutBench::poll() {
  std::array<PutsEvent, 16> events;
  const std::size_t count = puts_.poll(events);
  for (std::size_t i = 0; i < count; ++i) ++(events[i].arrived ? num_arrived_ : num_sent_);
  // Ranks may share a core; where each has its own this costs a fraction of a microsecond.
  if (count == 0) std::this_thread::yield();
}

void PutBench::wait_arrived(std::uint64_t more) {
  num_expected_ += more;  // some may have come while this rank waited for something else
  const Clock::time_point end = Clock::now() + kPatience;
  for (std::uint64_t polls = 1; num_arrived_ < num_expected_; ++polls) {
    poll();
    if (polls % 4096 == 0) {
      communicator_.check();
      if (Clock::now() > end) {
        throw Error(ErrorCode::timeout, fmt::format("rank {} has heard nothing of rank {} for {} s",
                                                    communicator_.rank(), peer_, kPatience.count()));
      }
    }
  }
}

void PutBench::wait_sent(std::uint64_t count) {
  while (num_sent_ < count) poll();
}

}  // namespace moelink::perf
