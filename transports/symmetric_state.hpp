// The insides of a SymmetricBuffer, and the steps by which one is built.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transports/memory.hpp"
#include "transports/symmetric_buffer.hpp"
#include "transports/symmetric_layout.hpp"

namespace moelink {

/// Steps, each local, in this order; between map_peer() of one rank and the constructor of another the ranks must have
/// met. Destroying a half-built one frees what there is.
class SymmetricBuffer::State {
 public:
  /// Allocates this rank's part. `nodes`: by rank.
  State(std::shared_ptr<MemoryTransport> transport, int rank, std::span<const int> nodes, std::size_t size_bytes,
        std::chrono::milliseconds farewell_deadline);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] MemoryTicket ticket() const { return local_->ticket(); }
  void map_peer(int peer, MemoryTicket ticket);
  /// After every map_peer(): writes the table of a large group. From here on others may count on this rank's farewell.
  void finish();
  /// Takes back map_peer() and finish(): others no longer wait for this rank, nor this rank for them.
  void unmap_peers();

  /// Where this memory ends with its owner (Lifetime::owner): a buffer of counted memory, mapped by the same ranks,
  /// whose words say who has closed its mappings of this one.
  void set_farewell_board(std::unique_ptr<State> board) { board_ = std::move(board); }
  /// Adds the multicast mapping that starts at `base`. `binding` is what it shows; it goes after everybody's mapping.
  void set_multicast(std::shared_ptr<void> binding, std::shared_ptr<void> mapping, std::byte* base);

  [[nodiscard]] const Window& window() const noexcept { return window_; }
  [[nodiscard]] LocalMemory& local() const noexcept { return *local_; }
  [[nodiscard]] MemoryTransport& transport() const noexcept { return *transport_; }
  [[nodiscard]] bool is_peer(int rank) const;
  void abandon() noexcept { abandoned_ = true; }

 private:
  void set_base(int rank, std::byte* base);
  bool part_from_peers();

  std::shared_ptr<MemoryTransport> transport_;
  SymmetricLayout layout_;
  std::vector<int> nodes_;
  std::chrono::milliseconds farewell_deadline_;
  bool finished_ = false;
  bool abandoned_ = false;
  std::vector<u8*> bases_;  // by rank; null where not mapped
  std::shared_ptr<LocalMemory> local_;
  std::vector<std::shared_ptr<MappedMemory>> peers_;  // by rank; null for this rank and for other nodes
  std::unique_ptr<State> board_;
  std::shared_ptr<void> multicast_binding_;  // declared after the memory that it binds: gone before it
  std::shared_ptr<void> multicast_mapping_;
  Window window_;
};

}  // namespace moelink
