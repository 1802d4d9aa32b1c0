// How fast ranks store to each other, measured in the same run: the limit of what goes over the wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moelink/buffer.hpp"
#include "moelink/communicator.hpp"
#include "perf/common/copy_limit.hpp"
#include "perf/common/shared_pages.hpp"

namespace moelink::perf {

/// Every rank stores to the next one, all at once, so that each link is busy in both directions. Ranks on the host are on
/// one node, ranks on GPUs in one process: other memory is out of this tool's reach.
class LinkLimit {
 public:
  /// Collective.
  LinkLimit(const Communicator& communicator, StreamView stream, Team& team);

  /// Why nothing can be measured; empty: it can.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  /// As CopyLimit::prepare: one work for each entry of `wire_bytes`, equal on all ranks. Collective. No works where
  /// nothing can be measured.
  [[nodiscard]] std::vector<CopyWork> prepare(const std::vector<std::int64_t>& wire_bytes, int num_sets);

 private:
  [[nodiscard]] int next_rank() const { return (communicator_.rank() + 1) % communicator_.size(); }
  [[nodiscard]] std::string obstacle();
  void map_next();
  void reserve(std::int64_t bytes);
  void reserve_device(std::int64_t rows);
  void copy(std::int64_t offset, std::int64_t bytes);

  Communicator communicator_;
  StreamView stream_;
  Team& team_;
  std::string reason_;
  Buffer from_;
  SharedPages mine_;  // host: the rank before this one stores here
  SharedPages next_;
  Buffer to_;      // CUDA: likewise
  Buffer places_;  // CUDA: row i goes to row i
  std::byte* peer_ = nullptr;
};

}  // namespace moelink::perf
