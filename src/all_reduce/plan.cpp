#include "all_reduce/plan.hpp"

#include <algorithm>
#include <limits>

#include "base/text.hpp"

namespace moelink {
namespace {

/// Thresholds as data: an algorithm serves messages up to its limit, for up to so many ranks. Measured with
/// `all_reduce_perf --algorithm each`; the tables are in docs/performance.md.
struct Threshold {
  int max_ranks;
  i64 push_bytes;    ///< up to here push
  i64 stream_bytes;  ///< then stream; beyond, two-shot (or NVLS)
};
constexpr i64 kAlways = std::numeric_limits<i64>::max();
constexpr Threshold kThresholds[] = {
    {2, 64 * 1024, kAlways},  // of two ranks each sends all that it has: two shots would move no less
    {4, 64 * 1024, 256 * 1024},
    {8, 32 * 1024, 128 * 1024},
    {1 << 30, 16 * 1024, 64 * 1024},
};

AllReduceAlgorithm choose(const AllReduceFacts& facts, i64 num_bytes) {
  if (facts.only != AllReduceAlgorithm::automatic) {
    return facts.only;
  }
  const auto* row = std::find_if(std::begin(kThresholds), std::end(kThresholds),
                                 [&](const Threshold& t) { return facts.num_ranks <= t.max_ranks; });
  if (num_bytes <= std::min(row->push_bytes, max_push_bytes(facts))) {
    return AllReduceAlgorithm::push;
  }
  if (num_bytes <= row->stream_bytes) {
    return AllReduceAlgorithm::stream;
  }
  return facts.multicast ? AllReduceAlgorithm::nvls : AllReduceAlgorithm::two_shot;
}

/// Vectors that make a block worth its two trips; fewer blocks than allowed run a message smaller than all of them.
constexpr i64 kLeastChunkVectors = 256;

i64 slot_bytes(AllReduceAlgorithm algorithm, int num_ranks) {
  return algorithm == AllReduceAlgorithm::stream ? stream_slot_bytes(num_ranks) : kSlotBytes;
}

}  // namespace

AllReducePlan plan_all_reduce(const AllReduceFacts& facts, i64 num_elements) {
  const i64 num_bytes = num_elements * bytes_of(facts.element);
  const i64 vectors = ceil_div<i64>(num_bytes, 16);
  AllReducePlan plan{.algorithm = choose(facts, num_bytes)};
  if (plan.algorithm == AllReduceAlgorithm::push) {
    plan.grid = static_cast<int>(ceil_div(vectors, i64{kPushThreads}));
    return plan;
  }
  const i64 slot_vectors = slot_bytes(plan.algorithm, facts.num_ranks) / 16;
  const i64 least_vectors = std::min(kLeastChunkVectors, slot_vectors);
  plan.grid = static_cast<int>(std::min<i64>(ceil_div(vectors, least_vectors), facts.max_staged_blocks));
  plan.num_steps = ceil_div<i64>(vectors, plan.grid * slot_vectors);
  plan.chunk_vectors = ceil_div<i64>(vectors, plan.grid * plan.num_steps);  // steps of equal length
  return plan;
}

std::string to_string(const AllReducePlan& plan) {
  const bool is_push = plan.algorithm == AllReduceAlgorithm::push;
  const bool is_stream = plan.algorithm == AllReduceAlgorithm::stream;
  const int threads = is_push ? kPushThreads : is_stream ? kStreamThreads : kTwoShotThreads;
  return text(name_of(plan.algorithm), " grid=", plan.grid, "x", threads) +
         (is_push ? std::string() : text(" chunk=", plan.chunk_vectors * 16));
}

}  // namespace moelink
