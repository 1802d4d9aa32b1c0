#include "moelink/device.hpp"

#include "runtime/cuda_backend.hpp"

namespace moelink {

Device Device::best() { return cuda_count() > 0 ? cuda(0) : host(); }

int Device::cuda_count() noexcept { return cuda::device_count(); }

std::string Device::name() const { return is_host() ? "host" : "cuda:" + std::to_string(ordinal_); }

}  // namespace moelink
