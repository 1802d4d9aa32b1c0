// Device memory as the host sees it: itself on the host backend, a copy on CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moelink/buffer.hpp"

namespace moelink::perf {

/// A piece of device memory, readable and writable by the host. Made after the work on the stream is done.
class HostPiece {
 public:
  HostPiece(const void* data, std::int64_t size_bytes, StreamView stream)
      : device_data_(const_cast<void*>(data)), size_bytes_(static_cast<std::size_t>(size_bytes)), stream_(stream) {
    if (stream.device().is_host()) {
      stream.synchronize();
    } else if (size_bytes_ != 0) {
      copy_.resize(size_bytes_);
      copy_bytes(copy_.data(), device_data_, size_bytes_, stream_);
      stream_.synchronize();
    }
  }

  [[nodiscard]] std::byte* data() noexcept {
    return stream_.device().is_host() ? static_cast<std::byte*>(device_data_) : copy_.data();
  }

  template <class T>
  [[nodiscard]] std::span<const T> as() noexcept {
    return {reinterpret_cast<const T*>(data()), size_bytes_ / sizeof(T)};
  }

  /// Takes what the host wrote back to the device.
  void write_back() {
    if (copy_.empty()) return;
    copy_bytes(device_data_, copy_.data(), size_bytes_, stream_);
    stream_.synchronize();
  }

 private:
  void* device_data_;
  std::size_t size_bytes_;
  StreamView stream_;
  std::vector<std::byte> copy_;
};

}  // namespace moelink::perf
