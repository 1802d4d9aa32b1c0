#include "transports/cuda/virtual_memory.hpp"

#if MOELINK_HAVE_CUDA

#include <string>

namespace moelink {

CudaHandle::~CudaHandle() {
  if (context_ != nullptr) {
    context_->driver().mem_release(handle_);
  }
}

CudaMapping::CudaMapping(std::shared_ptr<CudaContext> context, const CudaHandle& handle, std::size_t size_bytes,
                         std::size_t alignment_bytes)
    : context_(std::move(context)), size_bytes_(size_bytes) {
  const CudaDriver& driver = context_->driver();
  const CudaContext::Scope scope(*context_);
  check_cuda(driver.mem_address_reserve(&address_, size_bytes_, alignment_bytes, 0, 0),
             "cuMemAddressReserve(" + std::to_string(size_bytes_) + " bytes)");
  try {
    map(handle);
  } catch (...) {
    driver.mem_address_free(address_, size_bytes_);
    throw;
  }
}

void CudaMapping::map(const CudaHandle& handle) {
  const CudaDriver& driver = context_->driver();
  check_cuda(driver.mem_map(address_, size_bytes_, 0, handle.get(), 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = context_->device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (const CUresult result = driver.mem_set_access(address_, size_bytes_, &access, 1); result != CUDA_SUCCESS) {
    driver.mem_unmap(address_, size_bytes_);
    check_cuda(result, "cuMemSetAccess(for cuda:" + std::to_string(context_->ordinal()) + ")");
  }
}

CudaMapping::~CudaMapping() {
  const CudaDriver& driver = context_->driver();
  driver.mem_unmap(address_, size_bytes_);
  driver.mem_address_free(address_, size_bytes_);
}

CUmemAllocationProp shareable_memory(const CudaContext& context, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context.device();
  properties.requestedHandleTypes = type;
  // So that a NIC can reach it too, where the platform lets it.
  int rdma = 0;
  if (context.driver().device_get_attribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                            context.device()) == CUDA_SUCCESS) {
    properties.allocFlags.gpuDirectRDMACapable = rdma != 0 ? 1 : 0;
  }
  return properties;
}

CudaHandle create_memory(const std::shared_ptr<CudaContext>& context, std::size_t size_bytes,
                         const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  const CudaContext::Scope scope(*context);
  check_cuda(context->driver().mem_create(&handle, size_bytes, &properties, 0),
             "cuMemCreate(" + std::to_string(size_bytes) + " bytes)");
  return {context, handle};
}

std::size_t granularity_of(const CudaContext& context, const CUmemAllocationProp& properties) {
  std::size_t granularity = 0;
  check_cuda(
      context.driver().mem_get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity");
  return granularity;
}

}  // namespace moelink

#endif
