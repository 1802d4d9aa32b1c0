// One rank's part in a multicast object: a mapping through which a store reaches, and a load sums, the memory of all
// ranks at once.
#pragma once

#if MOELINK_HAVE_CUDA

#include <cstddef>
#include <memory>

#include "transports/cuda/virtual_transport.hpp"

namespace moelink {

/// The steps of cuMulticast*, which all ranks take together: create (one rank), join (all, before anybody's next step),
/// bind (all), map. Whatever was done is undone by the destructor: unbind, release.
class MulticastBinding {
 public:
  /// Takes part with the device of `context` in `object`, which has `size_bytes` (a multiple of its granularity).
  MulticastBinding(std::shared_ptr<CudaContext> context, CudaHandle object, std::size_t size_bytes);
  ~MulticastBinding();
  MulticastBinding(const MulticastBinding&) = delete;
  MulticastBinding& operator=(const MulticastBinding&) = delete;

  void join();
  /// Only after every rank has joined. `memory` must outlive this.
  void bind(const VirtualMemory& memory);
  /// The mapping may go before this, and must not go after it.
  [[nodiscard]] std::shared_ptr<CudaMapping> map() const;

 private:
  std::shared_ptr<CudaContext> context_;
  CudaHandle object_;
  std::size_t size_bytes_;
  bool bound_ = false;
};

/// An object for `num_devices` devices that each bind `size_bytes`, which can be exported as handles of `type`. Throws
/// ErrorCode::unsupported if `size_bytes` is not a multiple of the granularity.
[[nodiscard]] CudaHandle create_multicast(const std::shared_ptr<CudaContext>& context, int num_devices,
                                          std::size_t size_bytes, CUmemAllocationHandleType type);

}  // namespace moelink

#endif
