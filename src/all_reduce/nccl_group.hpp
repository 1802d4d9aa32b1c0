// One rank's NCCL communicator, none of whose calls waits longer than the deadline.
#pragma once

#if MOELINK_HAVE_NCCL

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "all_reduce/nccl_library.hpp"

namespace moelink {

/// Non-blocking underneath: NCCL works in a thread of its own while this polls, so that every wait can end by
/// ncclCommAbort. One thread calls all_reduce(); error() and abort() may come from any thread.
class NcclGroup {
 public:
  struct Membership {
    int rank = 0;
    int size = 1;
    ncclUniqueId id{};  ///< the same on every rank
    std::chrono::milliseconds deadline{};
    /// Called while this waits; what it throws (a fault of the group) ends the wait.
    std::function<void()> check = [] {};
  };

  /// Collective. Throws timeout when a rank does not come within the deadline, peer with NCCL's words when it fails.
  NcclGroup(const NcclLibrary& nccl, Membership membership);
  /// Lets peers have what is on its way, for at most a few seconds, unless the group was aborted.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Enqueues a sum. Returns when NCCL has put it into the stream.
  void all_reduce(const void* input, void* output, std::size_t count, ncclDataType_t type, cudaStream_t stream);

  /// What NCCL met since, in words; nothing while all is well. Waits for no rank, but while another thread is in a call
  /// of NCCL's on this communicator, abort() included, for its end.
  [[nodiscard]] std::optional<std::string> error() const;

  /// Ends what runs and whatever waits here. May take as long as NCCL needs to stop its kernels and threads.
  void abort() noexcept;

 private:
  void wait_until_done(const char* what);
  [[nodiscard]] ncclResult_t state() const;
  [[nodiscard]] bool finish() noexcept;

  const NcclLibrary& nccl_;
  Membership membership_;
  mutable std::mutex mutex_;  // NCCL's calls on one communicator take turns
  ncclComm_t comm_ = nullptr;
};

}  // namespace moelink

#endif
