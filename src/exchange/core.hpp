// What every mode finds: one Exchange's configuration, its shape, and the memory that all modes have.
#pragma once

#include <memory>

#include "exchange/call_check.hpp"
#include "exchange/memory.hpp"
#include "exchange/workspace.hpp"
#include "moelink/communicator.hpp"
#include "runtime/pinned_buffer.hpp"

namespace moelink {

/// What an Exchange calls itself where ranks compare and in errors.
inline constexpr const char* kExchangeName = "Exchange";

/// Made before the mode, and outlives it.
struct ExchangeCore {
  Communicator communicator;
  ExchangeConfig declared;  ///< as the caller wrote it
  ExchangeConfig config;    ///< the same as modes see it: rows that dispatch quantises are opaque
  ExchangeShape shape;
  LocalDevice device;  ///< what plans go by
  MemoryLayout layout;
  std::shared_ptr<Workspace::State> workspace;
  PinnedBuffer host_memory;

  /// A place of the device block.
  template <class T>
  [[nodiscard]] T* at(const Place<T>& place) const {
    return place.in(workspace->memory().data());
  }
  template <class T>
  [[nodiscard]] T* in_host_memory(const Place<T>& place) const {
    return place.in(host_memory.data());
  }
};

/// One dispatch that has been checked.
struct DispatchCall {
  DispatchArgs args;
  std::size_t payload = 0;   ///< index into ExchangeConfig::payloads
  bool unquantized = false;  ///< tokens are as the caller passed them, and are to be quantised on the way
  RoutingState routing;
  MutableMatrixView rows;    ///< the caller's or the library's; their number and stride are filled in
  MutableMatrixView scales;  ///< data null without scales
};

/// The combine that answers it.
struct CombineCall {
  CombineArgs args;
  std::size_t types = 0;  ///< index into ExchangeConfig::combine_types
  RoutingState routing;   ///< of the dispatch
};

/// The arguments of the local kernels for these calls, without what their plan decides.
[[nodiscard]] LocalDispatchArgs local_dispatch_args(const ExchangeCore& core, const DispatchCall& call,
                                                    const FaultContext& fault);
[[nodiscard]] LocalCombineArgs local_combine_args(const ExchangeCore& core, const CombineCall& call);

}  // namespace moelink
