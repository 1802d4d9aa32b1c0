#include "transports/multicast/binding.hpp"

#if MOELINK_HAVE_CUDA

#include <string>
#include <utility>

#include "moelink/error.hpp"

namespace moelink {

CudaHandle create_multicast(const std::shared_ptr<CudaContext>& context, int num_devices, std::size_t size_bytes,
                            CUmemAllocationHandleType type) {
  const CudaDriver& driver = context->driver();
  CUmulticastObjectProp properties{};
  properties.numDevices = static_cast<unsigned>(num_devices);
  properties.size = size_bytes;
  properties.handleTypes = static_cast<unsigned long long>(type);
  std::size_t granularity = 0;
  const CudaContext::Scope scope(*context);
  check_cuda(driver.multicast_get_granularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM),
             "cuMulticastGetGranularity");
  if (granularity == 0 || size_bytes % granularity != 0) {
    throw Error(ErrorCode::unsupported, "memory of " + std::to_string(size_bytes) +
                                            " bytes cannot be bound; expected a multiple of " +
                                            std::to_string(granularity));
  }
  CUmemGenericAllocationHandle handle = 0;
  check_cuda(driver.multicast_create(&handle, &properties), "cuMulticastCreate");
  return {context, handle};
}

MulticastBinding::MulticastBinding(std::shared_ptr<CudaContext> context, CudaHandle object, std::size_t size_bytes)
    : context_(std::move(context)), object_(std::move(object)), size_bytes_(size_bytes) {}

void MulticastBinding::join() {
  const CudaContext::Scope scope(*context_);
  check_cuda(context_->driver().multicast_add_device(object_.get(), context_->device()), "cuMulticastAddDevice");
}

void MulticastBinding::bind(const VirtualMemory& memory) {
  const CudaContext::Scope scope(*context_);
  check_cuda(context_->driver().multicast_bind_mem(object_.get(), 0, memory.handle(), 0, size_bytes_, 0),
             "cuMulticastBindMem");
  bound_ = true;
}

std::shared_ptr<CudaMapping> MulticastBinding::map() const {
  return std::make_shared<CudaMapping>(context_, object_, size_bytes_, 0);
}

MulticastBinding::~MulticastBinding() {
  if (bound_) {
    context_->driver().multicast_unbind(object_.get(), context_->device(), 0, size_bytes_);
  }
}

}  // namespace moelink

#endif
