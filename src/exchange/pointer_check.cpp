#include "exchange/pointer_check.hpp"

#include "base/cuda_driver.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {

#if MOELINK_HAVE_CUDA

void PointerCheck::ask_driver(const char* name, const void* pointer) const {
  const CudaDriver& driver = CudaDriver::get();
  const CudaContextScope scope(device_.ordinal());
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, text(name, " (", pointer, ") is ", what, "; expected memory of ",
                                                  device_.name(), " (moelink::Buffer, cuMemAlloc, ...)"));
  };

  unsigned memory_type = 0;
  const CUresult result = driver.pointer_get_attribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (result == CUDA_ERROR_INVALID_VALUE) {
    // Memory that CUDA has not heard of. Devices with pageable access read it all the same.
    int pageable = 0;
    check_cuda(driver.device_get_attribute(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device_.ordinal()),
               "cuDeviceGetAttribute");
    if (pageable == 0) refuse("host memory that the device cannot reach");
    return;
  }
  check_cuda(result, "cuPointerGetAttribute");
  if (memory_type == CU_MEMORYTYPE_HOST) return;  // pinned: slow, but legal
  int ordinal = 0;
  check_cuda(driver.pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address),
             "cuPointerGetAttribute");
  if (ordinal != device_.ordinal()) refuse(text("memory of ", Device::cuda(ordinal).name()));
}

#else

void PointerCheck::ask_driver(const char*, const void*) const {}

#endif

}  // namespace moelink
