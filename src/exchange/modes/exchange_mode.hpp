// How rows travel: what differs from mode to mode. Arguments are checked, the order of calls is checked, and the memory
// that all modes have is there (ExchangeCore) before a mode is called.
#pragma once

#include <memory>
#include <string>

#include "exchange/core.hpp"
#include "moelink/stream.hpp"

namespace moelink {

/// Owns the kernels of one Exchange, the memory that only this mode needs (private, and symmetric by PeerWorkspace),
/// and what it claims of a device that ranks share (ResidencyClaim). A function that throws has enqueued nothing.
class ExchangeMode {
 public:
  ExchangeMode() = default;
  virtual ~ExchangeMode() = default;
  ExchangeMode(const ExchangeMode&) = delete;
  ExchangeMode& operator=(const ExchangeMode&) = delete;

  virtual void dispatch(const DispatchCall& call, StreamView stream) = 0;
  virtual void combine(const CombineCall& call, StreamView stream) = 0;

  /// The same in halves; a receive gets the call that was sent.
  virtual void dispatch_send(const DispatchCall& call, StreamView stream) = 0;
  virtual void dispatch_receive(const DispatchCall& call, StreamView stream) = 0;
  virtual void combine_send(const CombineCall& call, StreamView stream) = 0;
  virtual void combine_receive(const CombineCall& call, StreamView stream) = 0;

  /// Whether the kernels of this mode quantise the tokens of this call themselves. If not, they get opaque rows.
  [[nodiscard]] virtual bool quantizes(const DispatchCall&) const { return false; }

  /// Throws the fault that this rank, a peer or the group met, if any. Never waits.
  virtual void check() = 0;

  /// The plans of a dispatch of `num_tokens` of payloads[payload] and of its combine, one a line.
  [[nodiscard]] virtual std::string describe_plan(i64 num_tokens, std::size_t payload) const = 0;
};

/// A mode in which nothing is ever under way between ranks when a call has been enqueued: the first half does it all.
class WholeCallMode : public ExchangeMode {
 public:
  void dispatch_send(const DispatchCall& call, StreamView stream) final { dispatch(call, stream); }
  void dispatch_receive(const DispatchCall&, StreamView) final {}
  void combine_send(const CombineCall& call, StreamView stream) final { combine(call, stream); }
  void combine_receive(const CombineCall&, StreamView) final {}
};

/// Collective over the ranks of the communicator. `core` outlives the mode.
[[nodiscard]] std::unique_ptr<ExchangeMode> make_mode(const ExchangeCore& core);

/// Adds what the mode of `shape` takes beside the memory that all modes have.
void add_mode_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                     MemoryReport& report);

}  // namespace moelink
