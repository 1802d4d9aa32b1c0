// A user's algorithm on moelink's device headers alone: every block sums its part, all meet, every block knows the
// total.
#pragma once

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/grid_barrier.cuh"

/// input [count] -> totals [blocks]: the sum of the input, once per block. `sum` and `barrier` are zero before the
/// first launch; `sum` is zero again afterwards.
struct TwoPhaseSum {
  const moelink::u32* input;
  int count;
  moelink::u64* sum;
  moelink::u64* totals;
  moelink::GridBarrierWord* barrier;
};

/// Returns whether all blocks came.
template <class Exec>
MOELINK_DEVICE bool two_phase_sum(const Exec& ex, const TwoPhaseSum& args) {
  using namespace moelink;
  u64 mine = 0;
  for (int i = ex.block() * ex.num_threads() + ex.thread(); i < args.count; i += ex.num_blocks() * ex.num_threads()) {
    mine += args.input[i];
  }
  red_add_relaxed_gpu(args.sum, mine);
  if (!grid_barrier(ex, args.barrier, FaultContext{})) {
    return false;
  }
  if (ex.thread() == 0) {
    args.totals[ex.block()] = ld_relaxed_gpu(args.sum);
  }
  if (!grid_barrier(ex, args.barrier, FaultContext{})) {
    return false;
  }
  if (ex.block() == 0 && ex.thread() == 0) {
    st_relaxed_gpu(args.sum, u64{0});
  }
  return true;
}
