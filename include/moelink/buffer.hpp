// Memory of one device, owned. The same code then works on the host and on a GPU.
#pragma once

#include <cstddef>
#include <span>

#include "moelink/device.hpp"
#include "moelink/export.hpp"
#include "moelink/stream.hpp"

namespace moelink {

/// Owns `size_bytes` of device memory (cuMemAlloc) or host memory, aligned to at least 256 bytes. Contents are
/// undefined. Movable, not copyable. Freeing waits for nothing: the caller synchronises first.
class MOELINK_EXPORT Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(Device device, std::size_t size_bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  [[nodiscard]] void* data() const noexcept { return data_; }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

 private:
  Device device_ = Device::host();
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

/// Enqueues a copy between any two places (host memory, device memory of one device) in stream order. Pageable host
/// memory is legal; such a copy may block the caller.
MOELINK_EXPORT void copy_bytes(void* destination, const void* source, std::size_t size_bytes, StreamView stream);

/// Enqueues filling with a byte.
MOELINK_EXPORT void fill_bytes(void* destination, unsigned char value, std::size_t size_bytes, StreamView stream);

}  // namespace moelink
