#include "spread_ranks.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "comm/meet.hpp"

namespace moelink::test {
namespace {

constexpr std::chrono::seconds kPatience{60};

/// The launched processes; null if there are not several.
const Launch* launched() {
  static const std::optional<Launch> launch = Launch::read(&Environment::process);
  return launch && launch->size > 1 && !launch->address.empty() ? &*launch : nullptr;
}

/// Every group of a test meets at a port of its own, so that none meets a straggler of the one before.
std::unique_ptr<Bootstrap> meet(const Launch& processes, int rank, int size, int port) {
  Launch launch = processes;
  launch.rank = rank;
  launch.size = size;
  launch.port = port;
  return meet_by_launcher(launch, Environment(), kPatience);
}

class SpreadRendezvous final : public Rendezvous {
 public:
  SpreadRendezvous(Bootstrap& bootstrap, std::vector<int> nodes) : bootstrap_(bootstrap), nodes_(std::move(nodes)) {}
  [[nodiscard]] int rank() const noexcept override { return bootstrap_.rank(); }
  [[nodiscard]] int size() const noexcept override { return bootstrap_.size(); }
  [[nodiscard]] int node_of(int rank) const override { return nodes_[static_cast<std::size_t>(rank)]; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::size_t at = 0;
    for (const Bytes& part : bootstrap_.all_gather("a test's all_gather", mine, kPatience)) {
      std::memcpy(all.data() + at, part.data(), part.size());
      at += part.size();
    }
  }
  void barrier() override { bootstrap_.barrier("a test's barrier", kPatience); }
  void give_up(std::string_view words) noexcept override {
    bootstrap_.abort({ErrorCode::timeout, bootstrap_.rank(), std::string(words)});
  }

 private:
  Bootstrap& bootstrap_;
  std::vector<int> nodes_;
};

/// What each rank threw, as its own process knows it, told to all processes.
std::vector<std::string> gather_failures(Bootstrap& processes, const std::vector<std::string>& mine) {
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < mine.size(); ++rank) {
    const auto parts = processes.all_gather("what ranks threw", std::as_bytes(std::span(mine[rank])), kPatience);
    const Bytes& part = parts[rank % parts.size()];
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return all;
}

}  // namespace

bool is_launched() { return launched() != nullptr; }

std::vector<std::string> run_spread_ranks(std::vector<int> nodes, const std::function<void(Rendezvous&)>& body) {
  static int port_offset = 0;
  const Launch& processes = *launched();
  const int port = processes.port + port_offset;
  port_offset += 2;
  const int size = static_cast<int>(nodes.size());
  std::vector<std::string> failures(nodes.size());
  std::vector<std::thread> threads;
  for (int rank = processes.rank; rank < size; rank += processes.size) {
    threads.emplace_back([&, rank] {
      try {
        const auto bootstrap = meet(processes, rank, size, port);
        SpreadRendezvous rendezvous(*bootstrap, nodes);
        body(rendezvous);
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return gather_failures(*meet(processes, processes.rank, processes.size, port + 1), failures);
}

}  // namespace moelink::test
