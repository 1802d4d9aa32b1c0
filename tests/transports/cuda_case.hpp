// The conformance suite on real devices.
#pragma once

#include <string>

#include "base/cuda_driver.hpp"
#include "memory_conformance.hpp"
#include "moelink/buffer.hpp"
#include "moelink/device.hpp"
#include "moelink/stream.hpp"
#include "transports/make_memory.hpp"
#include "transports/place.hpp"

namespace moelink::test {

/// Ranks share the devices of this machine in turn.
inline Device device_of_rank(int rank) { return Device::cuda(rank % std::max(1, Device::cuda_count())); }

/// Why `kind` cannot be tested here; empty if it can.
inline std::string why_no_cuda_kind(MemoryKind kind) {
  if (Device::cuda_count() == 0) {
    return "no CUDA device";
  }
  for (int ordinal = 0; ordinal < Device::cuda_count(); ++ordinal) {
    if (!place_of(Device::cuda(ordinal)).supports(kind)) {
      return "cuda:" + std::to_string(ordinal) + " or its driver does not support " + std::string(name_of(kind));
    }
  }
  return "";
}

inline void copy_now(int rank, void* destination, const void* source, std::size_t size_bytes) {
  const Stream stream(device_of_rank(rank));
  copy_bytes(destination, source, size_bytes, stream);
  stream.synchronize();
}

/// Threads of this process. Kinds whose handles cannot be opened in the process that made them have no such case.
inline MemoryCase cuda_case(MemoryKind kind) {
  return {std::string(name_of(kind)), [kind] { return why_no_cuda_kind(kind); },
          [kind](int rank) -> std::shared_ptr<MemoryTransport> { return make_memory(kind, device_of_rank(rank)); },
          [](int rank, void* address, std::uint32_t value) { copy_now(rank, address, &value, sizeof(value)); },
          [](int rank, const void* address) {
            std::uint32_t value = 0;
            copy_now(rank, &value, address, sizeof(value));
            return value;
          }};
}

}  // namespace moelink::test
