// The experts of each row: softmax over all experts' logits, the best top_k of them, their weights. A warp has a row.
// Equal logits: the lower expert first. Rows that only fill up get no expert (-1).
#pragma once

#include "engine/kernels/primitives/math.cuh"
#include "engine/kernels/primitives/reduce.cuh"

namespace moelink::engine {

struct RouterSpec {
  i32 num_experts;
  i32 top_k;
  i32 threads;
  bool normalises;  ///< weights of a row are divided by their sum

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(num_experts, top_k, threads, normalises);
  }
};

struct RouterArgs {
  const float* logits;   ///< [num_rows, num_experts]
  const float* rest;     ///< the same, to be added: of the second parts of the product's inputs; or null
  const i32* sequences;  ///< [num_rows]; -1: no expert
  i32* expert_ids;       ///< [num_rows, top_k]
  float* weights;        ///< [num_rows, top_k]
  i64 num_rows;
};

struct Router {
  static constexpr const char* kName = "Router";
  static constexpr const char* kHeader = "engine/kernels/router.cuh";
  using Spec = RouterSpec;
  using Args = RouterArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_warps();
    for (i64 row = static_cast<i64>(ex.block()) * ex.num_warps() + ex.warp(); row < args.num_rows; row += step) {
      choose(ex, spec, args, row);
    }
  }

 private:
  template <class Exec, class S>
  MOELINK_DEVICE static void choose(const Exec& ex, S spec, const Args& args, i64 row) {
    const float* first = args.logits + row * spec().num_experts;
    const float* rest = args.rest == nullptr ? nullptr : args.rest + row * spec().num_experts;
    const auto logit = [&](i32 e) { return rest == nullptr ? first[e] : first[e] + rest[e]; };
    float maximum = kNegativeInfinity;
    for (i32 e = ex.lane(); e < spec().num_experts; e += Exec::kWarpSize) maximum = max_of(maximum, logit(e));
    maximum = warp_max(ex, maximum);
    float sum = 0;
    for (i32 e = ex.lane(); e < spec().num_experts; e += Exec::kWarpSize) sum += exp_of(logit(e) - maximum);
    sum = warp_sum(ex, sum);

    float weights[kMaxTopK];
    float chosen_sum = 0;
    Scored last{-kNegativeInfinity, -1};  // better than all
    MOELINK_UNROLL
    for (i32 k = 0; k < spec().top_k; ++k) {
      // The best of those that are worse than the last.
      Scored best{kNegativeInfinity, spec().num_experts};
      for (i32 e = ex.lane(); e < spec().num_experts; e += Exec::kWarpSize) {
        const Scored candidate{logit(e), e};
        if (better(last, candidate) && better(candidate, best)) best = candidate;
      }
      last = warp_best(ex, best);
      weights[k] = exp_of(last.score - maximum) / sum;
      chosen_sum += weights[k];
      if (ex.lane() == 0) {
        // With logits that are no numbers nothing is better than anything.
        const bool none = args.sequences[row] < 0 || last.index >= spec().num_experts;
        args.expert_ids[row * spec().top_k + k] = none ? -1 : last.index;
      }
    }
    if (ex.lane() != 0) return;
    MOELINK_UNROLL
    for (i32 k = 0; k < spec().top_k; ++k) {
      args.weights[row * spec().top_k + k] = spec().normalises ? weights[k] / chosen_sum : weights[k];
    }
  }
};

}  // namespace moelink::engine
