#include "exchange/modes/exchange_mode.hpp"
#include "exchange/modes/local_mode.hpp"
#include "exchange/modes/mode_choice.hpp"
#include "exchange/modes/nvlink_mode.hpp"
#include "exchange/modes/remote_memory.hpp"
#include "exchange/modes/tensor_parallel_mode.hpp"
#include "moelink/error.hpp"

namespace moelink {

std::unique_ptr<ExchangeMode> make_mode(const ExchangeCore& core) {
  switch (core.shape.mode) {
    case Mode::local:
      return std::make_unique<LocalMode>(core);
    case Mode::tensor_parallel:
      return std::make_unique<TensorParallelMode>(core);
    case Mode::nvlink:
    case Mode::p2p:
      return std::make_unique<NvlinkMode>(core);
    case Mode::automatic:
      break;
  }
  throw Error(ErrorCode::system, "an Exchange without a mode");
}

void add_mode_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                     MemoryReport& report) {
  if (shape.mode == Mode::nvlink || shape.mode == Mode::p2p) add_nvlink_memory(shape, config, device, report);
  if (!shape.nodes.empty()) add_remote_memory(shape, config, report);
  if (shape.mode == Mode::tensor_parallel) TensorParallelMode::add_memory(shape, config, device, report);
}

}  // namespace moelink
