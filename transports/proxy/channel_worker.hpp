// The proxy's side of a channel. All of it runs under the proxy's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/proxy/channel.hpp"
#include "transports/proxy/visibility.hpp"
#include "transports/put.hpp"

namespace moelink {

class ChannelWorker {
 public:
  /// Registers the regions.
  ChannelWorker(PutTransport& transport, const PutChannel& channel, const PutChannelConfig& config,
                const PutOptions& options);

  /// The keys of all regions, for the other ranks; then theirs.
  [[nodiscard]] Bytes keys() const;
  void import_keys(int peer, std::span<const std::byte> keys);

  /// The next put that a kernel has left, if there is one. Throws PutFailure if it makes no sense.
  [[nodiscard]] bool take(Put& put);
  /// Lets kernels write the slots of what was taken.
  void release_taken();

  /// One of this channel's puts is sent.
  void note_sent(std::uint64_t token);
  /// A put of `peer` has arrived: checks it and returns the flag to raise, or null if it was a farewell.
  struct Arrival {
    u64* flag = nullptr;
    u64 epoch = 0;
  };
  [[nodiscard]] Arrival note_arrival(int peer, PutImmediate immediate);
  static void raise(const Arrival& arrival);

  [[nodiscard]] const RemoteWrites& remote_writes() const noexcept { return remote_writes_; }
  [[nodiscard]] bool has_unsent() const noexcept { return num_sent_ < num_taken_; }
  /// Says that this rank puts to `peer` no more.
  [[nodiscard]] Put farewell_to(int peer);
  [[nodiscard]] bool has_said_farewell() const noexcept { return said_farewell_; }
  [[nodiscard]] bool is_farewell_complete() const noexcept { return num_farewells_ == options_.remotes.size(); }

 private:
  struct Peer {
    std::vector<std::unique_ptr<RemoteRegion>> regions;
    u64 epoch = 0;  // the latest of which a chunk has come
    bool said_farewell = false;
  };
  [[nodiscard]] Put put_of(const PutDescriptor& slot) const;

  PutTransport& transport_;
  PutChannelView view_;
  u64* shared_taken_;
  u64* shared_sent_;
  u64* shared_arrived_;
  PutDescriptor* slots_;
  u32 exchange_;
  PutOptions options_;
  RemoteWrites remote_writes_;
  std::vector<std::unique_ptr<LocalRegion>> regions_;
  std::vector<Peer> peers_;  // by rank
  u64 next_ticket_ = 0;
  u64 sent_[kPutPhases + 1] = {};
  u64 num_taken_ = 0;
  u64 num_sent_ = 0;
  bool said_farewell_ = false;
  std::size_t num_farewells_ = 0;
};

}  // namespace moelink
