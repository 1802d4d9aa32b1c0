#include "transports/proxy/visibility.hpp"

#include "base/cuda_driver.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {

RemoteWrites::RemoteWrites(Device device) : device_(device) {
#if MOELINK_HAVE_CUDA
  if (device.is_host()) return;
  const CudaDriver& driver = CudaDriver::get();
  int ordering = 0;
  int options = 0;
  check_cuda(
      driver.device_get_attribute(&ordering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device.ordinal()),
      "cuDeviceGetAttribute(GPU_DIRECT_RDMA_WRITES_ORDERING)");
  check_cuda(
      driver.device_get_attribute(&options, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, device.ordinal()),
      "cuDeviceGetAttribute(GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)");
  need_flush_ = ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  const bool can_flush =
      (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0 && driver.flush_gpu_direct_rdma_writes != nullptr;
  if (need_flush_ && !can_flush) {
    throw Error(ErrorCode::unsupported,
                text(device.name(),
                     " neither orders writes of a NIC nor lets the host flush them; stage rows in host "
                     "memory"));
  }
#endif
}

void RemoteWrites::flush() const {
#if MOELINK_HAVE_CUDA
  if (!need_flush_) return;
  const CudaContextScope scope(device_.ordinal());
  check_cuda(CudaDriver::get().flush_gpu_direct_rdma_writes(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
             "cuFlushGPUDirectRDMAWrites");
#endif
}

}  // namespace moelink
