#include "transports/cuda/context.hpp"

#if MOELINK_HAVE_CUDA

#include <cstdint>

namespace moelink {

CudaContext::Scope::Scope(const CudaContext& context) : driver_(context.driver()) {
  check_cuda(driver_.ctx_push_current(context.handle()), "cuCtxPushCurrent");
  driver_.thread_exchange_stream_capture_mode(&mode_);
}

CudaContext::Scope::~Scope() {
  driver_.thread_exchange_stream_capture_mode(&mode_);
  CUcontext popped = nullptr;
  driver_.ctx_pop_current(&popped);
}

CudaContext::CudaContext(const CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  check_cuda(driver.device_get(&device_, ordinal), "cuDeviceGet");
  check_cuda(driver.device_primary_ctx_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  try {
    const Scope scope(*this);
    check_cuda(driver.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  } catch (...) {
    driver.device_primary_ctx_release(device_);
    throw;
  }
}

CudaContext::~CudaContext() {
  try {
    const Scope scope(*this);
    driver_.stream_destroy(stream_);
  } catch (...) {  // the context is lost, and the stream with it
  }
  driver_.device_primary_ctx_release(device_);
}

void CudaContext::zero(void* data, std::size_t size_bytes) const {
  const Scope scope(*this);
  check_cuda(driver_.memset_d8_async(reinterpret_cast<CUdeviceptr>(data), 0, size_bytes, stream_), "cuMemsetD8Async");
  check_cuda(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
}

void CudaContext::copy(void* destination, const void* source, std::size_t size_bytes) const {
  const Scope scope(*this);
  check_cuda(driver_.memcpy_async(reinterpret_cast<CUdeviceptr>(destination), reinterpret_cast<CUdeviceptr>(source),
                                  size_bytes, stream_),
             "cuMemcpyAsync");
  check_cuda(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
}

}  // namespace moelink

#endif
