// Sum over ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "moelink/communicator.hpp"
#include "moelink/exchange.hpp"
#include "moelink/export.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"

namespace moelink {

/// How ranks sum (docs/all-reduce.md). `automatic` picks by message size, ranks and measured thresholds inside a node,
/// and NCCL between nodes. pack is for two ranks, on one GPU or over NVLink; nvls needs deterministic = false and the
/// hardware; nccl a GPU for each rank. What cannot be had is ErrorCode::unsupported at construction, with the reason.
enum class AllReduceAlgorithm : std::uint8_t { automatic, push, pack, stream, two_shot, nvls, nccl };

[[nodiscard]] MOELINK_EXPORT std::string_view name_of(AllReduceAlgorithm algorithm) noexcept;

struct AllReduceConfig {
  DataType type = DataType::bfloat16;  ///< bfloat16, float16 or float32
  std::int64_t max_elements = 0;       ///< longest message; longer ones are refused. Memory does not depend on it
  /// The same bits from run to run: keeps NVLS out. NCCL between nodes promises no order either way.
  bool deterministic = true;
  /// Restricts the choice, on every rank alike: for measurements and tests.
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
};

/// One all-reduce. `input` and `output` are memory of the communicator's device, `num_elements` long, aligned to one
/// element; they are the same array (in place) or do not overlap. `num_elements` must be the same on every rank. A
/// difference is a fault, which check() throws: mismatch, or timeout where it leads the ranks to different algorithms.
/// (NCCL does not compare.)
struct AllReduceArgs {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t num_elements = 0;
};

/// Sums over the ranks of a communicator: output[i] = input[i] of rank 0 + rank 1 + ..., in fp32, in rank order,
/// rounded once to the type; the same bits on every rank. (nvls and nccl sum in an order of their own.) Construction is
/// collective, compiles and allocates; after it no call allocates, compiles, synchronises or logs, and every call can
/// be captured in a CUDA graph and replayed. Calls of one object are ordered by the caller's streams; two objects may
/// be in flight together. One thread at a time.
class MOELINK_EXPORT AllReduce {
 public:
  AllReduce(const Communicator& communicator, const AllReduceConfig& config);
  /// The streams it was used on must have passed its last call.
  ~AllReduce();
  AllReduce(AllReduce&&) noexcept;
  AllReduce& operator=(AllReduce&&) noexcept;

  /// The memory a configuration would take. Nothing is allocated.
  [[nodiscard]] static MemoryReport memory(const Communicator& communicator, const AllReduceConfig& config);

  /// Enqueues one all-reduce. Zero elements are legal and enqueue nothing. Throws before anything is enqueued.
  void operator()(const AllReduceArgs& args, StreamView stream);

  /// Throws the fault, if any call whose stream work has run met one (a wait that expired, a peer that left). Does not
  /// wait, but for 0.2 s at most for the reason why another rank ended the group. A fault is terminal: every later call
  /// throws it again. Graph replays have no host to throw: after replaying, and before using what they wrote, call this;
  /// output of a replay after a fault is undefined.
  void check();

  /// What a call of this length would do: "push grid=4x64 memory=vmm". Throws invalid_argument outside 0 to
  /// max_elements.
  [[nodiscard]] std::string describe_plan(std::int64_t num_elements) const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink
