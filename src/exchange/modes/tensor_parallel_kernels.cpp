#include "exchange/modes/tensor_parallel_kernels.hpp"

#include <algorithm>

#include "base/element.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {

TensorParallelSpec tp_spec(const TpPlan& plan, const TpFacts& facts, int top_k, Element input, Element output) {
  const bool is_push = plan.sum == TensorParallelSum::push;
  TensorParallelSpec spec{.hidden = facts.hidden,
                          .top_k = top_k,
                          .num_ranks = facts.num_ranks,
                          .threads = 0,
                          .input = input,
                          .output = output,
                          .source = plan.separate ? TpSource::partials : TpSource::rows,
                          .two_shot = plan.sum == TensorParallelSum::two_shot || plan.sum == TensorParallelSum::nvls,
                          .multicast = plan.sum == TensorParallelSum::nvls};
  if (plan.separate) {  // whatever the rows were, so that fewer kernels are compiled
    spec.top_k = 1;
    spec.input = Element::float32;
  }
  spec.threads = is_push ? kTpPushThreads : tp_staged_threads(spec.top_k, spec.num_ranks);
  return spec;
}

TensorParallelKernels::TensorParallelKernels(KernelLoader& loader, const TpFacts& facts, const ExchangeShape& shape,
                                             const ExchangeConfig& config)
    : push_scratch_bytes_(TensorParallelPush::scratch_bytes(shape.hidden)) {
  for (const CombineTypes& types : config.combine_types) {
    OfTypes& kernels = of_types_.emplace_back();
    for (const TpPlan& plan : kinds_of_plans(facts)) {
      const TensorParallelSpec spec =
          tp_spec(plan, facts, shape.top_k, element_of(types.expert_output), element_of(types.output));
      if (plan.sum == TensorParallelSum::push) {
        kernels.push = loader.add<TensorParallelPush>(spec);
        kernels.has_push = true;
      } else {
        kernels.staged.push_back({plan, loader.add<TensorParallelStaged>(spec)});
      }
    }
  }
}

void TensorParallelKernels::launch(const TpPlan& plan, std::size_t types, TensorParallelArgs args,
                                   StreamView stream) const {
  const OfTypes& kernels = of_types_[types];
  args.chunk_units = plan.chunk_units;
  if (plan.sum == TensorParallelSum::push) {
    return kernels.push.launch({.grid = plan.workers + 1, .scratch_bytes = push_scratch_bytes_}, args, stream);
  }
  const auto staged = std::find_if(kernels.staged.begin(), kernels.staged.end(), [&](const Staged& kernel) {
    return kernel.plan.sum == plan.sum && kernel.plan.separate == plan.separate;
  });
  if (staged == kernels.staged.end()) {
    throw Error(ErrorCode::unsupported, text("the plan '", describe(plan), "' was not foreseen at construction"));
  }
  staged->kernel.launch({.grid = plan.workers + 1, .scratch_bytes = TensorParallelStaged::kScratchBytes}, args, stream);
}

bool TensorParallelKernels::fit() const {
  return std::all_of(of_types_.begin(), of_types_.end(), [&](const OfTypes& kernels) {
    const bool push_fits = !kernels.has_push || kernels.push.max_blocks_per_sm(push_scratch_bytes_) >= 1;
    return push_fits && std::all_of(kernels.staged.begin(), kernels.staged.end(), [](const Staged& staged) {
             return staged.kernel.max_blocks_per_sm(TensorParallelStaged::kScratchBytes) >= 1;
           });
  });
}

}  // namespace moelink
