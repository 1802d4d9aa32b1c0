#include "transports/make_memory.hpp"

#include <string>
#include <string_view>

#include "moelink/error.hpp"
#include "transports/shm/memory.hpp"
#include "transports/threads/memory.hpp"

#if MOELINK_HAVE_CUDA
#include "transports/cuda/place.hpp"
#include "transports/fabric/memory.hpp"
#include "transports/ipc/memory.hpp"
#include "transports/vmm/memory.hpp"
#endif

namespace moelink {

std::unique_ptr<MemoryTransport> make_memory(MemoryKind kind, Device device) {
  switch (kind) {
    case MemoryKind::threads:
      return make_threads_memory(device);
    case MemoryKind::shm:
      if (device.is_host()) {
        return make_shm_memory();
      }
      break;
    case MemoryKind::vmm:
    case MemoryKind::fabric:
    case MemoryKind::ipc:
#if MOELINK_HAVE_CUDA
      if (device.is_cuda()) {
        return make_cuda_memory(kind, CudaDriver::get(), device.ordinal());
      }
#endif
      break;
  }
  throw Error(ErrorCode::unsupported, std::string(name_of(kind)) + " memory does not exist on " + device.name());
}

DeviceAccess device_access(const RankPlace& here, const RankPlace& there) {
  if (here.is_host() || there.is_host()) {
    return here.is_host() && there.is_host() ? DeviceAccess::same : DeviceAccess::none;
  }
  if (std::string_view(here.machine.data()) != std::string_view(there.machine.data())) {
    return DeviceAccess::elsewhere;
  }
#if MOELINK_HAVE_CUDA
  return cuda_device_access(CudaDriver::get(), here, there);
#else
  return DeviceAccess::none;
#endif
}

#if MOELINK_HAVE_CUDA
std::unique_ptr<MemoryTransport> make_cuda_memory(MemoryKind kind, const CudaDriver& driver, int ordinal) {
  switch (kind) {
    case MemoryKind::threads:
      return make_threads_memory(driver, ordinal);
    case MemoryKind::vmm:
      return make_vmm_memory(driver, ordinal);
    case MemoryKind::fabric:
      return make_fabric_memory(driver, ordinal);
    case MemoryKind::ipc:
      return make_ipc_memory(driver, ordinal);
    case MemoryKind::shm:
      break;
  }
  throw Error(ErrorCode::unsupported, std::string(name_of(kind)) + " memory does not exist on CUDA devices");
}
#endif

}  // namespace moelink
