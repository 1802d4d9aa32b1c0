// The one __global__ function template: every kernel of the library is an instantiation of it (spec.cuh).
#pragma once

#include "moelink/device/exec/device_exec.cuh"
#include "moelink/device/exec/spec.cuh"

namespace moelink {

template <class Kernel, typename Kernel::Spec S>
__global__ void __launch_bounds__(S.threads) entry(const __grid_constant__ typename Kernel::Args args) {
  Kernel::run(DeviceExec{}, Static<S>{}, args);
}

}  // namespace moelink
