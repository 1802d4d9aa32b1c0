#include "perf/collectives/shared_memory.hpp"

#include <atomic>
#include <cstring>
#include <span>
#include <stdexcept>
#include <thread>

namespace moelink::perf {
namespace {

constexpr int kSpinsPerLook = 4096;

}  // namespace

/// What ranks show each other.
struct SharedMemoryCollectives::Board {
  explicit Board(int num_ranks) : shown(static_cast<std::size_t>(num_ranks)) {}

  struct Shown {
    const void* data = nullptr;
    const RankRows* rows = nullptr;
  };
  std::atomic<std::uint64_t> arrived{0};  // over all meetings
  std::vector<Shown> shown;
};

SharedMemoryCollectives::SharedMemoryCollectives(const Communicator& communicator, StreamView stream, Team& team)
    : communicator_(communicator), stream_(stream), team_(team) {
  auto mine = std::make_shared<Board>(communicator.size());
  const std::shared_ptr<Board>* address = &mine;
  const auto all = communicator.all_gather(std::as_bytes(std::span(&address, 1)));
  std::memcpy(&address, all.front().data(), sizeof(address));
  board_ = *address;
  communicator.barrier();  // rank 0's `mine` lives until all have copied it
}

SharedMemoryCollectives::~SharedMemoryCollectives() = default;

void SharedMemoryCollectives::meet() {
  const std::uint64_t everyone = ++meetings_ * static_cast<std::uint64_t>(communicator_.size());
  board_->arrived.fetch_add(1, std::memory_order_acq_rel);
  for (int spins = 1; board_->arrived.load(std::memory_order_acquire) < everyone; ++spins) {
    std::this_thread::yield();
    if (spins % kSpinsPerLook == 0) communicator_.check();
  }
}

void SharedMemoryCollectives::show(const void* data, const RankRows* rows) {
  stream_.synchronize();
  board_->shown[static_cast<std::size_t>(communicator_.rank())] = {data, rows};
  meet();
}

void SharedMemoryCollectives::all_gather(const void* mine, void* all, std::int64_t bytes) {
  show(mine, nullptr);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    team_.copy(static_cast<std::byte*>(all) + rank * bytes, board_->shown[static_cast<std::size_t>(rank)].data, bytes);
  }
  meet();  // what was shown may change
}

void SharedMemoryCollectives::reduce_scatter(const void* all, void* mine, std::int64_t count, DataType type) {
  if (type != DataType::float32) throw std::logic_error("on the host, sums are in fp32");
  show(all, nullptr);
  auto* sum = static_cast<float*>(mine);
  const std::int64_t first = communicator_.rank() * count;
  team_.for_ranges(count, Team::kSmallestShareBytes, [&](std::int64_t begin, std::int64_t end) {
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      const auto* part = static_cast<const float*>(board_->shown[static_cast<std::size_t>(rank)].data) + first;
      for (std::int64_t i = begin; i < end; ++i) sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
    }
  });
  meet();
}

void SharedMemoryCollectives::all_to_all(const void* send, void* receive, std::int64_t bytes) {
  show(send, nullptr);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const auto* from = static_cast<const std::byte*>(board_->shown[static_cast<std::size_t>(rank)].data);
    team_.copy(static_cast<std::byte*>(receive) + rank * bytes, from + communicator_.rank() * bytes, bytes);
  }
  meet();
}

void SharedMemoryCollectives::exchange(const void* send, const RankRows& sent, void* receive, const RankRows& received,
                                       std::int64_t row_bytes) {
  show(send, &sent);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const Board::Shown& from = board_->shown[static_cast<std::size_t>(rank)];
    team_.copy(static_cast<std::byte*>(receive) + received.first(rank) * row_bytes,
               static_cast<const std::byte*>(from.data) + from.rows->first(communicator_.rank()) * row_bytes,
               received.counts[static_cast<std::size_t>(rank)] * row_bytes);
  }
  meet();
}

}  // namespace moelink::perf
