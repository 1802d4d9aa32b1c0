#include "exchange/modes/exchange_mode.hpp"
#include "exchange/modes/local_mode.hpp"
#include "exchange/modes/mode_choice.hpp"
#include "exchange/modes/nvlink_mode.hpp"
#include "exchange/modes/tensor_parallel_mode.hpp"

namespace moelink {

std::unique_ptr<ExchangeMode> make_mode(const ExchangeCore& core) {
  switch (core.shape.mode) {
    case Mode::local:
      return std::make_unique<LocalMode>(core);
    case Mode::tensor_parallel:
      return std::make_unique<TensorParallelMode>(core);
    case Mode::nvlink:
      return std::make_unique<NvlinkMode>(core);
    case Mode::p2p:
    case Mode::automatic:
      break;
  }
  refuse_unbuilt(core.shape.mode);
}

void add_mode_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                     MemoryReport& report) {
  if (shape.mode == Mode::nvlink) add_nvlink_memory(shape, config, device, report);
  if (shape.mode == Mode::tensor_parallel) TensorParallelMode::add_memory(shape, config, device, report);
}

}  // namespace moelink
