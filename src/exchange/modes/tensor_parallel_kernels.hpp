// The kernels that sum over the ranks: those that the configuration can lead to.
#pragma once

#include <vector>

#include "exchange/modes/tensor_parallel_plan.hpp"
#include "launch/kernel_loader.hpp"
#include "moelink/device/moe/tensor_parallel_parts.cuh"
#include "moelink/device/moe/tensor_parallel_push.cuh"
#include "moelink/device/moe/tensor_parallel_staged.cuh"

namespace moelink {

class TensorParallelKernels {
 public:
  /// Asks `loader` for them; launches are legal once it has loaded. `facts` as agreed, max_workers aside.
  TensorParallelKernels(KernelLoader& loader, const TpFacts& facts, const ExchangeShape& shape,
                        const ExchangeConfig& config);

  /// One launch, or two. `types`: index into ExchangeConfig::combine_types; `args` without what the plan says.
  void launch(const TpPlan& plan, std::size_t types, TensorParallelArgs args, StreamView stream) const;

  /// Whether a block of every kernel that waits fits an SM. After the loader's load().
  [[nodiscard]] bool fit() const;

 private:
  template <class K>
  struct OfPlan {
    TpPlan plan;
    Kernel<K> kernel;
  };
  struct OfTypes {
    i64 unit_bytes = 0;
    Kernel<TensorParallelPush> push;
    bool has_push = false;
    Kernel<TensorParallelParts> parts;
    std::vector<OfPlan<TensorParallelStaged>> staged;
    std::vector<OfPlan<TensorParallelSums>> sums;

    [[nodiscard]] int push_scratch_bytes() const { return TensorParallelPush::scratch_bytes(unit_bytes); }
  };
  std::vector<OfTypes> of_types_;
};

/// The spec of the kernel that sums over the ranks, and, if a plan is separate, of the one before.
[[nodiscard]] TensorParallelSpec tp_spec(const TpPlan& plan, const TpFacts& facts, int top_k, Element input,
                                         Element part, Element output);
[[nodiscard]] TensorParallelSpec tp_parts_spec(const TpFacts& facts, int top_k, Element input, Element part,
                                               Element output);

}  // namespace moelink
