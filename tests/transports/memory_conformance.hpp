// What every kind of memory that ranks map must do. A transport's test makes a MemoryCase and instantiates the suite.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "leftovers.hpp"
#include "ranks.hpp"
#include "transports/allocate.hpp"

namespace moelink::test {

/// A transport under test.
struct MemoryCase {
  std::string name;
  /// A reason to skip, or nothing.
  std::function<std::string()> obstacle;
  std::function<std::shared_ptr<MemoryTransport>(int rank)> make;
  /// One word of memory that rank `rank` sees, from the host.
  std::function<void(int rank, void* address, std::uint32_t value)> write;
  std::function<std::uint32_t(int rank, const void* address)> read;
};

inline void PrintTo(const MemoryCase& memory, std::ostream* out) { *out << memory.name; }

class MemoryConformance : public ::testing::TestWithParam<MemoryCase> {
 protected:
  void SetUp() override {
    if (const std::string obstacle = GetParam().obstacle(); !obstacle.empty()) {
      GTEST_SKIP() << obstacle;
    }
    const std::shared_ptr<MemoryTransport> first_use =
        GetParam().make(0);  // what stays by design is there from here on
    first_use->allocate(1);
    before_ = count_leftovers(directory_.path());
  }
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(count_leftovers(directory_.path()), before_);
    }
  }

  /// A driver opens descriptors at its first use of this and that, and keeps them.
  void warm_up() {
    run(2, [&](Rendezvous& meet, std::shared_ptr<MemoryTransport> transport) {
      const SymmetricBuffer buffer = allocate(meet, std::move(transport), 4096);
      write(buffer.window(), 1 - meet.rank(), 0, read(buffer.window(), meet.rank(), 1));
      meet.barrier();
    });
  }

  /// Runs `body(rendezvous, transport)` in `num_ranks` threads of one node; no rank may fail.
  void run(int num_ranks, const std::function<void(Rendezvous&, std::shared_ptr<MemoryTransport>)>& body) {
    const auto failures = run_ranks(std::vector<int>(static_cast<std::size_t>(num_ranks), 0),
                                    [&](Rendezvous& meet) { body(meet, GetParam().make(meet.rank())); });
    for (const std::string& failure : failures) {
      EXPECT_EQ(failure, "");
    }
  }
  SymmetricBuffer allocate(Rendezvous& meet, std::shared_ptr<MemoryTransport> transport, std::size_t size_bytes) {
    const std::vector<int> nodes(static_cast<std::size_t>(meet.size()), 0);
    return SymmetricBuffer(allocate_symmetric(meet, std::move(transport), nodes, size_bytes, options()));
  }
  [[nodiscard]] PeerGroupOptions options() const {
    PeerGroupOptions all;
    all.socket_directory = directory_.path();
    all.deadline = std::chrono::seconds(20);
    return all;
  }
  void write(const Window& window, int peer, int word, std::uint32_t value) const {
    GetParam().write(window.rank, window.at<std::uint32_t>(peer, word * 4), value);
  }
  [[nodiscard]] std::uint32_t read(const Window& window, int peer, int word) const {
    return GetParam().read(window.rank, window.at<std::uint32_t>(peer, word * 4));
  }

  TestDirectory directory_;
  Leftovers before_;
};

inline std::string case_name(const ::testing::TestParamInfo<MemoryCase>& info) { return info.param.name; }

/// Words of host memory.
inline void write_host(int /*rank*/, void* address, std::uint32_t value) {
  __atomic_store_n(static_cast<std::uint32_t*>(address), value, __ATOMIC_RELAXED);
}
inline std::uint32_t read_host(int /*rank*/, const void* address) {
  return __atomic_load_n(static_cast<const std::uint32_t*>(address), __ATOMIC_RELAXED);
}
inline std::string no_obstacle() { return ""; }

}  // namespace moelink::test
