// Streams and graphs for both backends. A CUDA stream made elsewhere can be used as it is: StreamView::cuda(handle).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "moelink/device.hpp"
#include "moelink/export.hpp"

namespace moelink {

class HostQueue;  // the host's in-order queue: one worker and its team of block threads (src/runtime)

/// A stream somebody else owns. Cheap to copy.
class MOELINK_EXPORT StreamView {
 public:
  /// A CUDA stream (cudaStream_t or CUstream) on `device`. The legacy default stream (null) is refused by the calls
  /// that use it: work of several ranks would serialise on it.
  [[nodiscard]] static StreamView cuda(Device device, void* handle) noexcept { return {device, handle, nullptr}; }

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] void* cuda_handle() const noexcept { return cuda_; }
  [[nodiscard]] HostQueue* host_queue() const noexcept { return host_; }

  /// Blocks the calling thread until all work enqueued so far is done. Throws what the work threw.
  void synchronize() const;

 private:
  friend class Stream;
  StreamView(Device device, void* cuda, HostQueue* host) noexcept : device_(device), cuda_(cuda), host_(host) {}
  Device device_;
  void* cuda_;
  HostQueue* host_;
};

/// An owned stream: a non-blocking CUDA stream, or an in-order queue with a worker on the host.
class MOELINK_EXPORT Stream {
 public:
  struct Options {
    /// Host only: threads that run the blocks of one launch. 0: MOELINK_HOST_THREADS, else the number of cores.
    int num_threads = 0;
  };

  explicit Stream(Device device);
  Stream(Device device, const Options& options);
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  [[nodiscard]] StreamView view() const;
  // NOLINTNEXTLINE(google-explicit-constructor): an owner can be viewed wherever a view is taken.
  operator StreamView() const { return view(); }
  [[nodiscard]] Device device() const;
  void synchronize() const { view().synchronize(); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A captured sequence of calls. On CUDA a CUDA graph; capture does not exist on the host, where `record` throws
/// ErrorCode::unsupported.
class MOELINK_EXPORT Graph {
 public:
  /// Captures what `body` enqueues on `stream` (relaxed mode), instantiates and uploads it.
  [[nodiscard]] static Graph record(StreamView stream, const std::function<void()>& body);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Enqueues one replay on `stream`.
  void launch(StreamView stream) const;

 private:
  struct Impl;
  explicit Graph(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// A point in a stream, for timing.
class MOELINK_EXPORT Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record(StreamView stream);
  void synchronize() const;
  /// Time from `start` to this event; both must have completed.
  [[nodiscard]] std::chrono::duration<double, std::micro> since(const Event& start) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink
