#include "transports/farewell.hpp"

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace moelink {
namespace {

constexpr std::uint64_t kGone = 1;

}  // namespace

void say_farewell(int rank, std::span<const std::shared_ptr<MappedMemory>> peers, std::size_t words_offset) noexcept {
  const std::size_t offset = words_offset + static_cast<std::size_t>(rank) * sizeof(kGone);
  for (const auto& peer : peers) {
    try {
      if (peer != nullptr) {
        peer->store(offset, std::as_bytes(std::span(&kGone, 1)));
      }
    } catch (...) {  // its context or its memory is lost: it will wait until its deadline
    }
  }
}

bool await_farewells(std::span<const std::shared_ptr<MappedMemory>> peers, const MappedMemory& local,
                     std::size_t words_offset, const Deadline& deadline) noexcept {
  try {
    std::vector<std::uint64_t> words(peers.size());
    while (true) {
      local.load(words_offset, std::as_writable_bytes(std::span(words)));
      bool all = true;
      for (std::size_t rank = 0; rank < peers.size(); ++rank) {
        all = all && (peers[rank] == nullptr || words[rank] == kGone);
      }
      if (all || deadline.expired()) {
        return all;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (...) {
    return false;
  }
}

}  // namespace moelink
