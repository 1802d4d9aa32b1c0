#include "exchange/modes/local_mode.hpp"

#include <chrono>

#include "base/fault.hpp"

namespace moelink {

LocalMode::LocalMode(const ExchangeCore& core)
    : core_(core),
      kernels_(LocalKernels::loaded(core.communicator.device(), core.device, core.shape, core.declared)),
      fault_{.word = core.at(core.layout.device.fault),
             .record = core.in_host_memory(core.layout.host.fault),
             .rank = core.communicator.rank(),
             .timeout_ns = static_cast<u64>(std::chrono::nanoseconds(core.communicator.deadline()).count())} {}

void LocalMode::dispatch(const DispatchCall& call, StreamView stream) {
  kernels_.dispatch(call, local_dispatch_args(core_, call, fault_), stream);
}

void LocalMode::combine(const CombineCall& call, StreamView stream) {
  kernels_.combine(call, local_combine_args(core_, call), stream);
}

bool LocalMode::quantizes(const DispatchCall& call) const { return kernels_.quantizes(call); }

void LocalMode::check() {
  if (const auto fault = read_fault(*fault_.record)) throw error_of(*fault);
}

std::string LocalMode::describe_plan(i64 num_tokens, std::size_t payload) const {
  return kernels_.describe_plan(num_tokens, payload);
}

}  // namespace moelink
