// The nvlink mode: every rank (or group of ranks) has tokens of its own, and rows travel by stores to peers
// (docs/nvlink.md). The p2p mode is the same with puts to the ranks of other nodes (docs/p2p.md).
#pragma once

#include <optional>

#include "exchange/modes/exchange_mode.hpp"
#include "exchange/modes/nvlink_kernels.hpp"
#include "exchange/modes/remote_link.hpp"
#include "peers/peer_workspace.hpp"
#include "peers/residency.hpp"

namespace moelink {

class NvlinkMode final : public ExchangeMode {
 public:
  /// Collective.
  explicit NvlinkMode(const ExchangeCore& core);

  [[nodiscard]] bool quantizes(const DispatchCall& call) const override { return kernels_->quantizes(call); }
  void dispatch(const DispatchCall& call, StreamView stream) override;
  void combine(const CombineCall& call, StreamView stream) override;
  void dispatch_send(const DispatchCall& call, StreamView stream) override;
  void dispatch_receive(const DispatchCall& call, StreamView stream) override;
  void combine_send(const CombineCall& call, StreamView stream) override;
  void combine_receive(const CombineCall& call, StreamView stream) override;
  void check() override;
  [[nodiscard]] std::string describe_plan(i64 num_tokens, std::size_t payload) const override;

 private:
  void agree_on_budget();
  void load_kernels();
  [[nodiscard]] NvlinkDispatchArgs dispatch_args(const DispatchCall& call) const;
  [[nodiscard]] NvlinkCombineArgs combine_args(const CombineCall& call) const;

  const ExchangeCore& core_;
  NvlinkShape shape_;
  NvlinkLayout layout_;
  NvlinkPrivateLayout private_layout_;
  PeerWorkspace workspace_;
  NvlinkBudget budget_;
  Buffer private_memory_;
  ResidencyClaim residency_;
  std::optional<RemoteLink> remotes_;  // if there are several nodes
  std::optional<NvlinkKernels> kernels_;
};

}  // namespace moelink
