// One Exchange's way to its remote ranks: regions, a ring to hand puts over, flags of what has arrived.
#pragma once

#include <memory>
#include <vector>

#include "moelink/buffer.hpp"
#include "moelink/device.hpp"
#include "moelink/protocol/put_channel.hpp"
#include "runtime/pinned_buffer.hpp"
#include "transports/put.hpp"

namespace moelink {

class PutProxy;

/// The same on every rank, but for the regions' addresses and sizes.
struct PutChannelConfig {
  Device device = Device::host();  ///< where the kernels run that use the channel
  /// What puts go from and into, by the number that kernels use; 1 to 255. The caller's, until the channel has gone.
  std::vector<PutMemory> regions{};
  int max_chunks = 1;     ///< of one source in one phase, 1 to 65536
  int ring_capacity = 0;  ///< puts between a kernel and the proxy; 0: as many as one phase can have, at most 4096
};

/// Owns what a PutChannelView shows. Kernels that use the view have ended before it goes.
///
/// Destruction tells every remote that this rank puts to it no more, and waits until all of them have said so, too, at
/// most the proxy's deadline; after a failure it does not wait. Then nobody writes the regions any longer: peers have
/// promised, or the transport refuses what they send.
class PutChannel {
 public:
  ~PutChannel();
  PutChannel(const PutChannel&) = delete;
  PutChannel& operator=(const PutChannel&) = delete;

  [[nodiscard]] const PutChannelView& view() const noexcept { return view_; }
  /// What a channel takes besides its regions.
  struct Memory {
    i64 shared_bytes = 0;  ///< that host and device share
    i64 device_bytes = 0;
  };
  [[nodiscard]] static Memory memory(const PutChannelConfig& config, int num_ranks, int num_remotes);

 private:
  friend class PutProxy;
  friend class ChannelWorker;
  PutChannel(PutProxy& proxy, const PutChannelConfig& config, int num_ranks, int num_remotes);

  PutProxy& proxy_;
  PinnedBuffer shared_;
  Buffer own_;
  PutChannelView view_;
  bool is_open_ = false;  // on every rank
};

}  // namespace moelink
