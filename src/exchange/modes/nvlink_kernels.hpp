// The kernels of the nvlink mode, loaded for one configuration: plan -> launch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exchange/core.hpp"
#include "exchange/modes/nvlink_memory.hpp"
#include "launch/kernel_loader.hpp"
#include "moelink/device/moe/nvlink_combine.cuh"
#include "moelink/device/moe/nvlink_combine_many.cuh"
#include "moelink/device/moe/nvlink_decode.cuh"
#include "moelink/device/moe/nvlink_prefill.cuh"
#include "moelink/protocol/nvlink_combine_plan.hpp"
#include "moelink/protocol/nvlink_decode_plan.hpp"
#include "moelink/protocol/nvlink_prefill_plan.hpp"

namespace moelink {

/// What one rank's launches may occupy: the same on every rank. A launch waits for other ranks with all of its blocks,
/// so that those of all ranks on one device must find room at the same time, whichever kernels they are and wherever
/// blocks of others lie. Where ranks share a device, a block of any kernel therefore counts with the same part of an
/// SM, the largest that any of them needs, and each rank has its share of these parts.
struct NvlinkBudget {
  i32 sms = 1;             ///< host: 1 as agreed; what a call may occupy are the threads of its stream
  bool is_shared = false;  ///< other ranks use the device as well
  i32 blocks_per_sm = 1;   ///< if it is shared: of every kernel
};

/// The halves of a call that a launch does.
enum class NvlinkHalf { send, receive, both };

class NvlinkKernels {
 public:
  /// Asks `loader` for all that the configuration, as the caller declared it, can need; launches are legal once it has
  /// loaded.
  NvlinkKernels(KernelLoader& loader, const LocalDevice& limits, const ExchangeShape& shape,
                const ExchangeConfig& declared, bool is_shared);
  /// After the loader's load(): throws ErrorCode::unsupported if a block of some kernel does not fit an SM.
  void check_residency() const;
  /// Blocks that one SM holds of the kernel that it holds fewest of.
  [[nodiscard]] int least_blocks_per_sm() const;

  /// Whether dispatch() of this call takes tokens that are not yet quantised.
  [[nodiscard]] bool quantizes(const DispatchCall& call) const;

  /// `args` without what plan and half decide. `budget` as agreed.
  void dispatch(const DispatchCall& call, NvlinkHalf half, const NvlinkBudget& budget, NvlinkDispatchArgs args,
                StreamView stream) const;
  void combine(const CombineCall& call, NvlinkHalf half, const NvlinkBudget& budget, NvlinkCombineArgs args,
               StreamView stream) const;

  /// The plans of a dispatch and its combine, one a line.
  [[nodiscard]] std::string describe_plan(i64 num_tokens, std::size_t payload, const NvlinkBudget& budget) const;

 private:
  struct DispatchKernels {
    NvlinkDispatchSpec spec;  ///< without block size; of decode, if that quantises
    i64 decode_tokens = -1;   ///< most tokens of a call that is decode; -1: none is
    Kernel<NvlinkDecode> decode;
    bool prefill_is_used = false;
    Kernel<NvlinkPrefill> prefill;
  };
  [[nodiscard]] DispatchKernels add_dispatch(KernelLoader& loader, const NvlinkDispatchSpec& spec,
                                             const Payload& declared) const;
  void launch_decode(const DispatchKernels& kernels, const DispatchCall& call, const NvlinkBudget& budget,
                     NvlinkDispatchArgs args, StreamView stream) const;
  void launch_prefill(const DispatchKernels& kernels, const DispatchCall& call, const NvlinkBudget& budget,
                      NvlinkDispatchArgs args, StreamView stream) const;
  /// Calls visit(name, blocks per SM, scratch bytes of a block) for every kernel.
  template <class Visit>
  void for_each_kernel(Visit&& visit) const;
  [[nodiscard]] bool uses_prefill() const;
  [[nodiscard]] bool combines_many(std::size_t types, i64 num_tokens) const;
  [[nodiscard]] i32 decode_blocks(const DispatchKernels& kernels, i64 num_tokens, const NvlinkBudget& budget) const;

  LocalDevice limits_;
  i64 max_tokens_;
  std::vector<DispatchKernels> plain_;          // by payload
  std::vector<DispatchKernels> weighted_;       // by payload; empty kernels where rows are opaque
  std::vector<Kernel<NvlinkCombine>> combine_;  // by combine types
  std::vector<std::optional<Kernel<NvlinkCombineMany>>> combine_many_;  // likewise, where calls are for it
};

}  // namespace moelink
