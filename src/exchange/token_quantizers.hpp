// Tokens that are quantised before a mode dispatches them: modes whose kernels do not quantise get opaque rows.
#pragma once

#include <optional>
#include <vector>

#include "exchange/core.hpp"
#include "moelink/quantize.hpp"

namespace moelink {

class TokenQuantizers {
 public:
  /// Compiles what the declared payloads need. `core` outlives this.
  explicit TokenQuantizers(const ExchangeCore& core);

  /// Enqueues; `call` then has the quantised tokens and their scales.
  void quantize(DispatchCall& call, StreamView stream) const;

 private:
  const ExchangeCore& core_;
  std::vector<std::optional<Quantizer>> quantizers_;  // by payload
};

}  // namespace moelink
