// The tensor-parallel mode: inputs are replicated, every rank keeps the experts that it owns, and combine sums over the
// ranks (docs/tensor-parallel.md).
#pragma once

#include <memory>
#include <optional>

#include "exchange/local_kernels.hpp"
#include "exchange/modes/exchange_mode.hpp"
#include "exchange/modes/tensor_parallel_kernels.hpp"
#include "peers/peer_workspace.hpp"
#include "peers/residency.hpp"

namespace moelink {

class TensorParallelMode final : public WholeCallMode {
 public:
  explicit TensorParallelMode(const ExchangeCore& core);

  [[nodiscard]] bool quantizes(const DispatchCall& call) const override { return local_->quantizes(call); }
  void dispatch(const DispatchCall& call, StreamView stream) override;
  void combine(const CombineCall& call, StreamView stream) override;
  void check() override { workspace_.check(); }
  [[nodiscard]] std::string describe_plan(i64 num_tokens, std::size_t payload) const override;

  static void add_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                         MemoryReport& report);

 private:
  void load_kernels();
  void claim_blocks();
  [[nodiscard]] TensorParallelArgs sum_args(const CombineCall& call, const TpPlan& plan, Element part) const;

  const ExchangeCore& core_;
  TpFacts facts_;
  TensorParallelLayout layout_;
  PeerWorkspace workspace_;
  std::optional<LocalKernels> local_;
  std::optional<TensorParallelKernels> sums_;
  ResidencyClaim residency_;
  Buffer private_memory_;  // epochs and digest
};

}  // namespace moelink
