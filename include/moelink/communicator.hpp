// Ranks: who takes part, on which device each of them runs, and how they meet.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "moelink/device.hpp"
#include "moelink/export.hpp"
#include "moelink/topology.hpp"

namespace moelink {

/// How a rank joins.
struct CommunicatorOptions {
  /// Default: CUDA device (rank on its node mod devices), or the host where there is none.
  std::optional<Device> device = {};
  /// Longest wait for other ranks, at construction and in every later collective set-up call. 0: MOELINK_DEADLINE
  /// seconds, else 60 s.
  std::chrono::milliseconds deadline{0};
  /// Pretend that every so many ranks are a node of their own: what can map each other's memory is then cut into
  /// pieces, between which puts go. 0: MOELINK_RANKS_PER_NODE, else nodes are what they are. Negative is
  /// invalid_argument, other than on another rank a mismatch.
  int ranks_per_node = 0;
};

/// How in_process() spreads its ranks.
struct InProcessOptions {
  std::vector<int> devices = {};  ///< CUDA ordinals, taken in turn by the ranks; empty: every rank on the host
  std::chrono::milliseconds deadline{0};
  int ranks_per_node = 0;  ///< as in CommunicatorOptions
};

/// Gathers equally long contributions: all.size() == size * mine.size(), rank r's bytes at r * mine.size().
using AllGatherFunction = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;

/// One rank's membership of a group of ranks. Cheap to copy: copies share one state, and the rank leaves when the last
/// copy goes. Construction is collective and compares versions over ranks; it throws Error when a rank is missing
/// (timeout, naming it), refused (peer) or different (mismatch).
///
/// A fault (a rank that died, a wait that expired, abort()) is terminal: every rank that can be reached learns of it,
/// every later collective call throws it, and only destruction is left.
class MOELINK_EXPORT Communicator {
 public:
  using Options = CommunicatorOptions;

  /// A group of one.
  [[nodiscard]] static Communicator single(Device device = Device::best());

  /// The group that a launcher started this process in: torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
  /// MASTER_PORT), Open MPI, MPICH, PMIx or Slurm variables, the first that is complete; a group of one without any.
  /// Ranks meet over TCP at MASTER_ADDR; on one node a launcher's job id is enough. docs/bootstrap.md has the details.
  [[nodiscard]] static Communicator from_environment(const Options& options = {});

  /// `size` ranks, 1 to 1024, in this process, for threads. A rank's collective calls (constructing an Exchange,
  /// barrier(), ...) must come from a thread of its own, not from the one that called in_process(): use
  /// on_every_rank().
  [[nodiscard]] static std::vector<Communicator> in_process(int size, const InProcessOptions& options = {});

  /// Bring your own way to gather: it is called a few times, here and never again; ranks then talk over TCP, to the
  /// address that rank 0 publishes through it, so that deadlines and faults work the same everywhere. What `all_gather`
  /// throws passes through; how long it blocks is the caller's affair.
  Communicator(int rank, int size, const AllGatherFunction& all_gather, const Options& options = {});

  /// The deadline that these options stand for: their own, or the default.
  [[nodiscard]] static std::chrono::milliseconds deadline_of(const Options& options);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] Device device() const;
  [[nodiscard]] const Topology& topology() const;
  [[nodiscard]] std::chrono::milliseconds deadline() const;

  /// Waits until every rank is here. Set-up only: not for the hot path.
  void barrier() const;
  /// Every rank's bytes (up to 1 MiB each, lengths may differ), in rank order. Set-up only.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) const;

  /// Throws the fault of this group, if there is one. Never waits.
  void check() const;
  /// Ends the group on every rank with ErrorCode::aborted. From any thread; does not wait.
  void abort(std::string_view reason) const noexcept;

  struct State;  // src/comm
  [[nodiscard]] State& state() const;

 private:
  explicit Communicator(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

namespace detail {
MOELINK_EXPORT void run_on_every_rank(std::span<const Communicator> ranks, const std::function<void(std::size_t)>& run);
}

/// Calls body(communicator) for each of the ranks of one process, each on a thread of its own, and waits for all:
///
///   auto ranks = Communicator::in_process(8);
///   std::vector<Exchange> exchanges = on_every_rank(ranks, [&](const Communicator& c) { return Exchange(c, config);
///   });
///
/// Returns what the bodies returned, in rank order. If a body throws, ranks that wait for its rank are released with an
/// error and the first exception is thrown again.
template <class Body>
auto on_every_rank(std::span<const Communicator> ranks, Body&& body) {
  using Result = std::invoke_result_t<Body&, const Communicator&>;
  if constexpr (std::is_void_v<Result>) {
    detail::run_on_every_rank(ranks, [&](std::size_t i) { body(ranks[i]); });
  } else {
    std::vector<std::optional<Result>> slots(ranks.size());
    detail::run_on_every_rank(ranks, [&](std::size_t i) { slots[i].emplace(body(ranks[i])); });
    std::vector<Result> results;
    results.reserve(slots.size());
    for (auto& slot : slots) {
      results.push_back(std::move(*slot));
    }
    return results;
  }
}
template <class Body>
auto on_every_rank(const std::vector<Communicator>& ranks, Body&& body) {
  return on_every_rank(std::span<const Communicator>(ranks), std::forward<Body>(body));
}

}  // namespace moelink
