// The one __global__ function template: every kernel of the library is an instantiation of it (spec.cuh).
#pragma once

#include "moelink/device/exec/device_exec.cuh"
#include "moelink/device/exec/spec.cuh"

namespace moelink {

/// Blocks that one SM should hold at once, if a spec cares (`blocks_per_sm`). Stated even when it is 1: without it the
/// assembler saves registers for an occupancy nobody asked for, and spills.
template <auto S>
inline constexpr int kBlocksPerSm = 1;
template <auto S>
requires requires { S.blocks_per_sm; }
inline constexpr int kBlocksPerSm<S> = S.blocks_per_sm;

template <class Kernel, typename Kernel::Spec S>
__global__ void __launch_bounds__(S.threads, kBlocksPerSm<S>)
    entry(const __grid_constant__ typename Kernel::Args args) {
  Kernel::run(SizedDeviceExec<S.threads>{}, Static<S>{}, args);
}

}  // namespace moelink
