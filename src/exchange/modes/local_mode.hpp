// The local mode: all experts are here, and a call is one launch.
#pragma once

#include "exchange/local_kernels.hpp"
#include "exchange/modes/exchange_mode.hpp"

namespace moelink {

class LocalMode final : public WholeCallMode {
 public:
  explicit LocalMode(const ExchangeCore& core);

  void dispatch(const DispatchCall& call, StreamView stream) override;
  void combine(const CombineCall& call, StreamView stream) override;
  [[nodiscard]] bool quantizes(const DispatchCall& call) const override;
  void check() override;
  [[nodiscard]] std::string describe_plan(i64 num_tokens, std::size_t payload) const override;

 private:
  const ExchangeCore& core_;
  LocalKernels kernels_;
  FaultContext fault_;  // for the grid barrier of prefill
};

}  // namespace moelink
