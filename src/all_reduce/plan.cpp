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
  i64 pack_bytes;    ///< then pack, where it can be
  i64 stream_bytes;  ///< then stream; beyond, two-shot (or NVLS)
};
constexpr i64 kAlways = std::numeric_limits<i64>::max();
constexpr Threshold kThresholds[] = {
    // Of two ranks each sends all that it has: two shots would move no less. Where pack ends is reckoned for NVLink
    // (4/3 of the bytes at 366 GB/s and 2.6 us, beside what stream was measured at there); on one GPU, where it was
    // measured, it wins at 4 MiB, too (docs/decisions/0024-all-reduce-packs-lines.md).
    {2, 64 * 1024, 2 * 1024 * 1024, kAlways},
    {4, 64 * 1024, 0, 256 * 1024},
    {8, 32 * 1024, 0, 128 * 1024},
    {1 << 30, 16 * 1024, 0, 64 * 1024},
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
  // On the host nothing is gained: its stores are not waited for anyway, and pack moves more.
  if (!facts.on_host && num_bytes <= std::min(row->pack_bytes, max_pack_bytes(facts))) {
    return AllReduceAlgorithm::pack;
  }
  if (num_bytes <= row->stream_bytes) {
    return AllReduceAlgorithm::stream;
  }
  return facts.multicast ? AllReduceAlgorithm::nvls : AllReduceAlgorithm::two_shot;
}

/// Vectors that make a block worth its two trips; fewer blocks than allowed run a message smaller than all of them.
constexpr i64 kLeastChunkVectors = 256;

/// Every block has whole groups, and none is without: what a block sees in a call tells it that the other rank's has
/// left the last one.
AllReducePlan plan_pack(const AllReduceFacts& facts, i64 vectors) {
  const i64 groups = ceil_div<i64>(vectors, kPackGroupVectors);
  const i64 block_groups = ceil_div<i64>(groups, facts.max_pack_blocks);
  return {.algorithm = AllReduceAlgorithm::pack,
          .grid = static_cast<int>(ceil_div(groups, block_groups)),
          .chunk_vectors = block_groups * kPackGroupVectors};
}

i64 slot_bytes(AllReduceAlgorithm algorithm, int num_ranks) {
  return algorithm == AllReduceAlgorithm::stream ? stream_slot_bytes(num_ranks) : kSlotBytes;
}

int threads_of(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::push:
      return kPushThreads;
    case AllReduceAlgorithm::pack:
      return kPackThreads;
    case AllReduceAlgorithm::stream:
      return kStreamThreads;
    default:
      return kTwoShotThreads;
  }
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
  if (plan.algorithm == AllReduceAlgorithm::pack) {
    return plan_pack(facts, vectors);
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
  return text(name_of(plan.algorithm), " grid=", plan.grid, "x", threads_of(plan.algorithm)) +
         (is_push ? std::string() : text(" chunk=", plan.chunk_vectors * 16));
}

}  // namespace moelink
