// How ranks part without a collective call: each buffer has a word per rank that says "I shall not touch this again".
#pragma once

#include <memory>
#include <span>

#include "base/deadline.hpp"
#include "transports/memory.hpp"

namespace moelink {

/// Writes this rank's word in the memory of every peer (null entries are skipped). `words_offset`: of [ranks] u64 words
/// in each rank's memory. A peer that cannot be written is skipped: it has its deadline.
void say_farewell(int rank, std::span<const std::shared_ptr<MappedMemory>> peers, std::size_t words_offset) noexcept;

/// True once every rank r with peers[r] has written its word in `local`; false when the deadline passed or the memory
/// cannot be read.
[[nodiscard]] bool await_farewells(std::span<const std::shared_ptr<MappedMemory>> peers, const MappedMemory& local,
                                   std::size_t words_offset, const Deadline& deadline) noexcept;

}  // namespace moelink
