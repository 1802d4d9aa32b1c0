// A UCX worker with an endpoint for each remote: how it begins, and how it ends.
#pragma once

#if MOELINK_HAVE_UCX

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "transports/put.hpp"
#include "transports/ucx/library.hpp"

namespace moelink {

/// How long a destructor lets UCX hand its last messages to the network, then end what it cannot.
inline constexpr std::chrono::milliseconds kUcxPatience{500};

/// The connection with one remote. Never moves: UCX points at it.
struct UcxEndpoint {
  int rank = -1;
  ucp_ep_h handle = nullptr;     ///< null: not connected, or closed
  bool was_used = false;         ///< by messages of this rank
  bool is_flushed = false;       ///< before it is closed
  ucs_status_t status = UCS_OK;  ///< what it failed with
};

class UcxWorker {
 public:
  /// `on_message`, `arg`: who gets active messages of number `message_id`, inside progress(). Throws Error.
  UcxWorker(const UcxLibrary& ucx, const PutOptions& options, unsigned message_id, ucp_am_recv_callback_t on_message,
            void* arg);
  /// Closes what is open, at once. Requests that UcxPut::end_requests() has not seen end are lost with their
  /// memory.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] const UcxLibrary& ucx() const noexcept { return ucx_; }
  [[nodiscard]] ucp_worker_h handle() const noexcept { return worker_; }
  [[nodiscard]] Bytes address() const;
  void connect(int rank, std::span<const std::byte> address);
  [[nodiscard]] UcxEndpoint& endpoint(int rank) { return endpoints_[static_cast<std::size_t>(rank)]; }

  /// Whether anything happened. Nothing does any more after keep().
  bool progress() { return !is_kept_ && ucx_.worker_progress(worker_) != 0; }
  /// Progress until `is_over` or the deadline. Whether it is over.
  bool progress_until(const std::function<bool()>& is_over, const Deadline& deadline);

  /// Hands over what endpoints still hold, as far as peers take it soon, and closes them. `gently`: not by force those
  /// that hold nothing.
  void close_endpoints(bool gently) noexcept;

  /// UCX has not ended what was under way with `rank`, although the connection is closed. No call into this worker any
  /// more, so that nothing is written; not its destruction either, for which UCX 1.13 would end the process. What it
  /// holds is kept until the process ends. Says so.
  void keep(int rank) noexcept;

 private:
  void create(const PutOptions& options, unsigned message_id, ucp_am_recv_callback_t on_message, void* arg);
  void destroy() noexcept;
  void flush_endpoints() noexcept;
  bool finish(void* request, const Deadline& deadline, int rank) noexcept;

  const UcxLibrary& ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<UcxEndpoint> endpoints_;  // by rank
  bool is_kept_ = false;
};

/// Throws Error (system) if `status` is none that is good.
void check_ucx(const UcxLibrary& ucx, ucs_status_t status, const std::string& what);

}  // namespace moelink

#endif
