// One Exchange's way to the ranks of other nodes (docs/p2p.md): regions that puts go from and into, and the channel.
#pragma once

#include <memory>
#include <string>

#include "exchange/core.hpp"
#include "exchange/modes/remote_memory.hpp"
#include "moelink/buffer.hpp"
#include "runtime/pinned_buffer.hpp"
#include "transports/proxy/proxy.hpp"

namespace moelink {

class RemoteLink {
 public:
  /// Collective; all ranks throw or none. The regions are the device's memory if the transport reaches it on every
  /// rank, else host memory that the device reads and writes.
  RemoteLink(const ExchangeCore& core, const NvlinkShape& shape);
  /// Kernels that use args() have ended. Waits for nobody: memory that peers may still put into is kept by the proxy.
  ~RemoteLink();
  RemoteLink(const RemoteLink&) = delete;
  RemoteLink& operator=(const RemoteLink&) = delete;

  [[nodiscard]] RemoteArgs args() const;
  /// Throws if puts have failed. Never waits.
  void check() const { proxy_->check(); }
  /// For people: the transport, and where rows are staged.
  [[nodiscard]] std::string describe() const;

 private:
  struct Regions;
  void open(const Communicator& communicator);
  void write_tables(const ExchangeCore& core);

  RemotePlan plan_;
  RemoteArgs args_;  // without addresses
  RemoteTables layout_;
  Buffer tables_;
  std::shared_ptr<PutProxy> proxy_;
  std::shared_ptr<Regions> regions_;
  std::unique_ptr<PutChannel> channel_;
};

}  // namespace moelink
