// One Exchange: api -> check -> plan -> args -> launch, and the state between calls.
#pragma once

#include "exchange/core.hpp"
#include "exchange/modes/exchange_mode.hpp"
#include "exchange/status_board.hpp"
#include "exchange/token_quantizers.hpp"
#include "runtime/pointer_check.hpp"

namespace moelink {

/// What all modes share: checks, the order of calls, views, status. How rows travel is the mode's.
class Exchange::Impl {
 public:
  /// `workspace` null: one of its own. Collective.
  Impl(const Communicator& communicator, const ExchangeConfig& config, std::shared_ptr<Workspace::State> workspace);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ExpertBatch dispatch(const DispatchArgs& args, StreamView stream);
  void combine(const CombineArgs& args, StreamView stream);
  /// The halves. A send returns the number of its call, which the receive is given.
  std::uint64_t dispatch_send(const DispatchArgs& args, StreamView stream);
  ExpertBatch dispatch_receive(std::uint64_t call, StreamView stream);
  std::uint64_t combine_send(const CombineArgs& args, StreamView stream);
  void combine_receive(std::uint64_t call, StreamView stream);

  [[nodiscard]] MutableMatrixView expert_output_buffer(DataType type) const;
  std::span<const std::int32_t> host_counts(StreamView stream);
  [[nodiscard]] std::string describe_plan(std::int64_t num_tokens, std::size_t payload) const;

  void check();
  [[nodiscard]] DataErrors data_errors() const noexcept { return status_.data_errors(); }
  [[nodiscard]] const ExchangeConfig& config() const noexcept { return core_.declared; }
  [[nodiscard]] const ExchangeShape& shape() const noexcept { return core_.shape; }
  [[nodiscard]] const MemoryReport& memory() const noexcept { return core_.layout.report; }

 private:
  /// Which call has been enqueued last.
  enum class Stage { combined, dispatch_sent, dispatched, combine_sent };

  void check_fault() const;
  void check_next(Stage expected, const char* call) const;
  void check_ticket(std::uint64_t call, const char* name) const;
  void check_dispatch_is_next(bool reuse_routing) const;
  void check_pointers(const DispatchArgs& args);
  [[nodiscard]] DispatchCall checked(const DispatchArgs& args, StreamView stream);
  [[nodiscard]] CombineCall checked(const CombineArgs& args, StreamView stream);
  /// The call as the mode takes it: its tokens quantised, if that is not what its kernels do themselves.
  [[nodiscard]] DispatchCall prepared(DispatchCall call, StreamView stream) const;
  void enter_dispatch(const DispatchCall& call, Stage stage);
  [[nodiscard]] MutableMatrixView rows_of_call(const DispatchArgs& args, const DispatchChoice& choice) const;
  [[nodiscard]] MutableMatrixView scales_of_call(const DispatchChoice& choice) const;
  [[nodiscard]] ExpertBatch batch() const;

  ExchangeCore core_;
  StatusBoard status_;
  PointerCheck check_pointer_;
  std::unique_ptr<ExchangeMode> mode_;
  TokenQuantizers quantizers_;
  Stage stage_ = Stage::combined;
  std::uint64_t num_sent_ = 0;  // halves sent: the number of the ticket that is out
  DispatchCall dispatch_;       // the last
  CombineCall combine_;         // the last that was sent
};

}  // namespace moelink
