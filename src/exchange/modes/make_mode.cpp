#include "exchange/modes/exchange_mode.hpp"
#include "exchange/modes/local_mode.hpp"
#include "exchange/modes/mode_choice.hpp"

namespace moelink {

std::unique_ptr<ExchangeMode> make_mode(const ExchangeCore& core) {
  switch (core.shape.mode) {
    case Mode::local:
      return std::make_unique<LocalMode>(core);
    case Mode::tensor_parallel:
    case Mode::nvlink:
    case Mode::p2p:
    case Mode::automatic:
      break;
  }
  refuse_unbuilt(core.shape.mode);
}

void add_mode_memory(const ExchangeShape&, const ExchangeConfig&, const LocalDevice&, MemoryReport&) {}

}  // namespace moelink
