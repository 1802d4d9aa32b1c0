// Host memory that a device reads and writes directly: reports that nobody has to wait for.
#pragma once

#include <cstddef>

#include "moelink/device.hpp"

namespace moelink {

/// Owns zeroed host memory, mapped for `device` at the same address and aligned to at least 256 bytes (on the host:
/// plain memory). Movable, not copyable. Freeing waits for nothing.
class PinnedBuffer {
 public:
  PinnedBuffer(Device device, std::size_t size_bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  Device device_;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace moelink
