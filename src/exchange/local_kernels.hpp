// The kernels that work on one rank, loaded for one configuration: plan -> launch.
#pragma once

#include <string>
#include <vector>

#include "exchange/core.hpp"
#include "launch/kernel_loader.hpp"
#include "moelink/device/moe/local_combine.cuh"
#include "moelink/device/moe/local_decode.cuh"
#include "moelink/device/moe/local_move.cuh"
#include "moelink/device/moe/local_prefill.cuh"
#include "moelink/protocol/local_plan.hpp"

namespace moelink {

/// A host stream may have any number of threads; no more than these run the blocks of one call.
inline constexpr int kMaxHostBlocks = 256;

/// What plans and workspaces go by. Host: the most blocks any call may have.
[[nodiscard]] LocalDevice local_device(Device device);
/// The same for calls on `stream`: on the host, blocks are its threads.
[[nodiscard]] LocalDevice local_device_of_call(const LocalDevice& device, StreamView stream);

/// "dispatch prefill: 132 blocks of 512 threads, 213504 B scratch".
[[nodiscard]] std::string describe(const LocalDispatchPlan& plan, const LocalDispatchSpec& spec);
[[nodiscard]] std::string describe(const LocalCombinePlan& plan, const LocalCombineSpec& spec);

class LocalKernels {
 public:
  /// `config`: as declared, if dispatch is to quantise tokens itself; as carried, if it gets quantised ones.
  /// Asks `loader` for all that the configuration can need; launches are legal once the loader has loaded. Where inputs
  /// are replicated, dispatch keeps this rank's experts, and there is no combine here.
  LocalKernels(KernelLoader& loader, const LocalDevice& limits, const ExchangeShape& shape,
               const ExchangeConfig& config);
  /// The same with a loader of its own, loaded.
  [[nodiscard]] static LocalKernels loaded(Device device, const LocalDevice& limits, const ExchangeShape& shape,
                                           const ExchangeConfig& config);

  /// `args` without what the plan decides.
  void dispatch(const DispatchCall& call, LocalDispatchArgs args, StreamView stream) const;

  void combine(const CombineCall& call, LocalCombineArgs args, StreamView stream) const;

  /// Whether dispatch() of this call takes tokens that are not yet quantised.
  [[nodiscard]] bool quantizes(const DispatchCall& call) const;

  /// The plans of a dispatch and its combine, one a line; of a dispatch alone.
  [[nodiscard]] std::string describe_plan(i64 num_tokens, std::size_t payload) const;
  [[nodiscard]] std::string describe_dispatch(i64 num_tokens, std::size_t payload) const;

  /// Prefill has a grid barrier: throws ErrorCode::unsupported unless a block of it fits every SM that its grid is
  /// planned for. After the loader has loaded.
  void check_residency(i64 max_tokens) const;

 private:
  struct DispatchKernels {
    LocalDispatchSpec spec;  ///< without block size
    LocalDispatchSpec
        quantizing_spec;  ///< of tokens that are not yet quantised, if the payload has such; else the same
    Kernel<LocalDecode> decode;
    Kernel<LocalDecode> quantizing_decode;
    bool prefill_is_used = false;
    bool quantizing_prefill_is_used = false;
    Kernel<LocalPrefill> prefill;
    Kernel<LocalPrefill> quantizing_prefill;
    Kernel<LocalMove> move;
  };
  [[nodiscard]] DispatchKernels add_dispatch(KernelLoader& loader, const LocalDispatchSpec& spec, i64 max_tokens) const;
  void add_quantizing(KernelLoader& loader, DispatchKernels& kernels, const Payload& declared, i64 max_tokens) const;
  void check_prefill_fits(const Kernel<LocalPrefill>& prefill, const LocalDispatchSpec& spec, i64 max_tokens) const;
  [[nodiscard]] LocalDevice described_device() const;

  LocalDevice limits_;
  std::vector<DispatchKernels> plain_;         // by payload
  std::vector<DispatchKernels> weighted_;      // by payload; empty kernels where rows are opaque
  std::vector<Kernel<LocalCombine>> combine_;  // by types; empty where inputs are replicated
};

}  // namespace moelink
