#include "exchange/modes/tensor_parallel_kernels.hpp"

#include <algorithm>

#include "base/element.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

template <class Kernels>
const auto& kernel_of(const Kernels& kernels, const TpPlan& plan) {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const auto& kernel) { return kernel.plan.sum == plan.sum; });
  if (found == kernels.end()) {
    throw Error(ErrorCode::unsupported, text("the plan '", describe(plan), "' was not foreseen at construction"));
  }
  return found->kernel;
}

}  // namespace

TensorParallelSpec tp_spec(const TpPlan& plan, const TpFacts& facts, int top_k, Element input, Element part,
                           Element output) {
  const bool is_push = plan.sum == TensorParallelSum::push;
  TensorParallelSpec spec{.hidden = facts.hidden,
                          .top_k = top_k,
                          .num_ranks = facts.num_ranks,
                          .threads = is_push ? kTpPushThreads : tp_staged_threads(facts.num_ranks),
                          .input = input,
                          .part = part,
                          .output = output,
                          .two_shot = plan.sum == TensorParallelSum::two_shot || plan.sum == TensorParallelSum::nvls,
                          .multicast = plan.sum == TensorParallelSum::nvls};
  if (plan.separate) {  // rows are not looked at
    spec.top_k = 1;
    spec.input = part;
  }
  return spec;
}

TensorParallelSpec tp_parts_spec(const TpFacts& facts, int top_k, Element input, Element part, Element output) {
  return {.hidden = facts.hidden,
          .top_k = top_k,
          .num_ranks = facts.num_ranks,
          .threads = kTpPartsThreads,
          .blocks_per_sm = 2,
          .input = input,
          .part = part,
          .output = output};
}

TensorParallelKernels::TensorParallelKernels(KernelLoader& loader, const TpFacts& facts, const ExchangeShape& shape,
                                             const ExchangeConfig& config) {
  for (const CombineTypes& types : config.combine_types) {
    const Element input = element_of(types.expert_output);
    const Element output = element_of(types.output);
    const Element part = tp_part(config, types);
    OfTypes& kernels = of_types_.emplace_back();
    kernels.unit_bytes = tp_unit_elements(facts.hidden) * bytes_of(part);
    for (const TpPlan& plan : kinds_of_plans(facts, bytes_of(part))) {
      const TensorParallelSpec spec = tp_spec(plan, facts, shape.top_k, input, part, output);
      if (plan.sum == TensorParallelSum::push) {
        kernels.push = loader.add<TensorParallelPush>(spec);
        kernels.has_push = true;
      } else if (plan.separate) {
        kernels.parts = loader.add<TensorParallelParts>(tp_parts_spec(facts, shape.top_k, input, part, output));
        kernels.sums.push_back({plan, loader.add<TensorParallelSums>(spec)});
      } else {
        kernels.staged.push_back({plan, loader.add<TensorParallelStaged>(spec)});
      }
    }
  }
}

void TensorParallelKernels::launch(const TpPlan& plan, std::size_t types, TensorParallelArgs args,
                                   StreamView stream) const {
  const OfTypes& kernels = of_types_[types];
  args.chunk_tiles = plan.chunk_tiles;
  const int grid = plan.workers + 1;
  if (plan.sum == TensorParallelSum::push) {
    return kernels.push.launch({.grid = grid, .scratch_bytes = kernels.push_scratch_bytes()}, args, stream);
  }
  if (!plan.separate) {
    const auto& kernel = kernel_of(kernels.staged, plan);
    return kernel.launch({.grid = grid, .scratch_bytes = TensorParallelStaged::kScratchBytes}, args, stream);
  }
  const auto& kernel = kernel_of(kernels.sums, plan);
  kernels.parts.launch({.grid = plan.parts_blocks}, args, stream);
  kernel.launch({.grid = grid, .scratch_bytes = TensorParallelSums::kScratchBytes}, args, stream);
}

bool TensorParallelKernels::fit() const {
  const auto fit_all = [](const auto& kernels, int scratch_bytes) {
    return std::all_of(kernels.begin(), kernels.end(),
                       [&](const auto& of_plan) { return of_plan.kernel.max_blocks_per_sm(scratch_bytes) >= 1; });
  };
  return std::all_of(of_types_.begin(), of_types_.end(), [&](const OfTypes& kernels) {
    const bool push_fits = !kernels.has_push || kernels.push.max_blocks_per_sm(kernels.push_scratch_bytes()) >= 1;
    return push_fits && fit_all(kernels.staged, TensorParallelStaged::kScratchBytes) &&
           fit_all(kernels.sums, TensorParallelSums::kScratchBytes);
  });
}

}  // namespace moelink
