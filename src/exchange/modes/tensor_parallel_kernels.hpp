// The kernels that sum over the ranks: those that the configuration can lead to.
#pragma once

#include <vector>

#include "exchange/modes/tensor_parallel_plan.hpp"
#include "launch/kernel_loader.hpp"
#include "moelink/device/moe/tensor_parallel_push.cuh"
#include "moelink/device/moe/tensor_parallel_staged.cuh"

namespace moelink {

class TensorParallelKernels {
 public:
  /// Asks `loader` for them; launches are legal once it has loaded. `facts` as agreed, max_workers aside.
  TensorParallelKernels(KernelLoader& loader, const TpFacts& facts, const ExchangeShape& shape,
                        const ExchangeConfig& config);

  /// `types`: index into ExchangeConfig::combine_types; `args` without chunk_units.
  void launch(const TpPlan& plan, std::size_t types, TensorParallelArgs args, StreamView stream) const;

  /// Whether a block of every kernel fits an SM. After the loader's load().
  [[nodiscard]] bool fit() const;

 private:
  struct Staged {
    TpPlan plan;
    Kernel<TensorParallelStaged> kernel;
  };
  struct OfTypes {
    Kernel<TensorParallelPush> push;
    bool has_push = false;
    std::vector<Staged> staged;
  };
  i32 push_scratch_bytes_;
  std::vector<OfTypes> of_types_;
};

/// The spec of a plan's kernel.
[[nodiscard]] TensorParallelSpec tp_spec(const TpPlan& plan, const TpFacts& facts, int top_k, Element input,
                                         Element output);

}  // namespace moelink
