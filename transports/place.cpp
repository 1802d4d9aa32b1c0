#include "transports/place.hpp"

#include <algorithm>
#include <string_view>

#include "moelink/error.hpp"
#include "transports/process_token.hpp"

#if MOELINK_HAVE_CUDA
#include "transports/cuda/place.hpp"
#endif

namespace moelink {
namespace {

constexpr std::uint8_t bit(MemoryKind kind) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind)); }

std::string hex(const std::array<std::uint8_t, 16>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace

RankPlace place_of(Device device) {
  RankPlace place;
  place.process = process_token();
  const std::string machine = boot_id();
  std::copy_n(machine.begin(), std::min(machine.size(), place.machine.size() - 1), place.machine.begin());
  place.device_ordinal = device.ordinal();
  if (device.is_host()) {
    place.device_kinds = bit(MemoryKind::threads) | bit(MemoryKind::shm);
    return place;
  }
#if MOELINK_HAVE_CUDA
  describe_cuda_device(CudaDriver::get(), NvmlTable::get(), place);
  return place;
#else
  throw Error(ErrorCode::unsupported, device.name() + " was asked for, but this build has no CUDA");
#endif
}

std::string node_key(const RankPlace& place) {
  return place.has_fabric ? "fabric " + hex(place.fabric_cluster) + " clique " + std::to_string(place.fabric_clique)
                          : "machine " + std::string(place.machine.data());
}

}  // namespace moelink
