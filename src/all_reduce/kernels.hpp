// The kernels of one AllReduce: those that its configuration can choose.
#pragma once

#include "all_reduce/plan.hpp"
#include "launch/kernel_loader.hpp"
#include "moelink/device/all_reduce/pack.cuh"
#include "moelink/device/all_reduce/push.cuh"
#include "moelink/device/all_reduce/stream.cuh"
#include "moelink/device/all_reduce/two_shot.cuh"

namespace moelink {

struct AllReduceKernels {
  Kernel<AllReducePush> push;
  Kernel<AllReducePack> pack;  ///< empty unless has_pack
  Kernel<AllReduceStream> stream;
  Kernel<AllReduceTwoShot> two_shot;
  Kernel<AllReduceTwoShot> nvls;  ///< empty unless has_nvls
  bool has_pack = false;
  bool has_nvls = false;

  /// Asks the loader for them; `with_nvls` only where the memory has a multicast mapping.
  static AllReduceKernels add_to(KernelLoader& loader, Element element, int num_ranks, bool with_nvls);

  /// Blocks of the staged kernel that fits least often, per SM. After load().
  [[nodiscard]] int staged_blocks_per_sm() const;
};

/// The specs behind them.
[[nodiscard]] AllReduceSpec push_spec(Element element, int num_ranks);
[[nodiscard]] AllReduceSpec pack_spec(Element element, int num_ranks);
[[nodiscard]] AllReduceSpec stream_spec(Element element, int num_ranks);
[[nodiscard]] AllReduceSpec two_shot_spec(Element element, int num_ranks, bool multicast);

}  // namespace moelink
