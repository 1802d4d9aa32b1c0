// One Exchange: api -> check -> plan -> args -> launch, and the state between calls.
#pragma once

#include "exchange/call_check.hpp"
#include "exchange/local_kernels.hpp"
#include "exchange/memory.hpp"
#include "runtime/pointer_check.hpp"
#include "exchange/status_board.hpp"
#include "exchange/workspace.hpp"
#include "runtime/pinned_buffer.hpp"

namespace moelink {

class Exchange::Impl {
 public:
  /// `workspace` null: one of its own.
  Impl(const Communicator& communicator, const ExchangeConfig& config, std::shared_ptr<Workspace::State> workspace);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ExpertBatch dispatch(const DispatchArgs& args, StreamView stream);
  void combine(const CombineArgs& args, StreamView stream);
  [[nodiscard]] MutableMatrixView expert_output_buffer(DataType type) const;
  std::span<const std::int32_t> host_counts(StreamView stream);
  [[nodiscard]] std::string describe_plan(std::int64_t num_tokens, std::size_t payload) const;

  [[nodiscard]] StatusBoard& status() noexcept { return status_; }
  [[nodiscard]] const ExchangeConfig& config() const noexcept { return config_; }
  [[nodiscard]] const MemoryReport& memory() const noexcept { return layout_.report; }

 private:
  void check_dispatch_is_next(bool reuse_routing) const;
  void check_combine_is_next() const;
  void check_pointers(const DispatchArgs& args);
  [[nodiscard]] MutableMatrixView rows_of_call(const DispatchArgs& args, const DispatchChoice& choice) const;
  [[nodiscard]] MutableMatrixView scales_of_call(const DispatchChoice& choice) const;
  [[nodiscard]] LocalDispatchArgs dispatch_args(const DispatchArgs& args, const RoutingState& routing,
                                                const MutableMatrixView& rows, const MutableMatrixView& scales) const;
  [[nodiscard]] LocalCombineArgs combine_args(const CombineArgs& args) const;
  [[nodiscard]] ExpertBatch batch(const RoutingState& routing, const MutableMatrixView& rows,
                                  const MutableMatrixView& scales) const;
  /// A place of the device block.
  template <class T>
  [[nodiscard]] T* at(const Place<T>& place) const {
    return place.in(workspace_->memory().data());
  }

  Communicator communicator_;
  ExchangeConfig config_;
  ExchangeShape shape_;
  Device device_;
  LocalDevice local_device_;
  MemoryLayout layout_;
  std::shared_ptr<Workspace::State> workspace_;
  PinnedBuffer host_memory_;
  StatusBoard status_;
  PointerCheck check_pointer_;
  LocalKernels kernels_;
  RoutingState routing_;  // of the last dispatch
};

}  // namespace moelink
