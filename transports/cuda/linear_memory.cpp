#include "transports/cuda/linear_memory.hpp"

#if MOELINK_HAVE_CUDA

#include <limits>
#include <string>
#include <utility>

#include "moelink/error.hpp"

namespace moelink {

std::size_t round_up_bytes(std::size_t size_bytes, std::size_t granularity_bytes) {
  if (size_bytes == 0 || size_bytes > std::numeric_limits<std::size_t>::max() / 2 - granularity_bytes) {
    throw Error(ErrorCode::invalid_argument,
                "a buffer of " + std::to_string(size_bytes) + " bytes was asked for; expected 1 to 2^63 - 1");
  }
  return (size_bytes + granularity_bytes - 1) / granularity_bytes * granularity_bytes;
}

CudaLinearMemory::CudaLinearMemory(std::shared_ptr<CudaContext> context, std::size_t size_bytes,
                                   std::size_t granularity_bytes)
    : context_(std::move(context)), size_bytes_(round_up_bytes(size_bytes, granularity_bytes)) {
  const CudaDriver& driver = context_->driver();
  CUdeviceptr address = 0;
  {
    const CudaContext::Scope scope(*context_);
    check_cuda(driver.mem_alloc(&address, size_bytes_), "cuMemAlloc(" + std::to_string(size_bytes_) + " bytes)");
  }
  data_ = reinterpret_cast<std::byte*>(address);
  try {
    context_->zero(data_, size_bytes_);
  } catch (...) {
    const CudaContext::Scope scope(*context_);
    driver.mem_free(address);
    throw;
  }
}

CudaLinearMemory::~CudaLinearMemory() {
  try {
    const CudaContext::Scope scope(*context_);
    context_->driver().mem_free(reinterpret_cast<CUdeviceptr>(data_));
  } catch (...) {  // the context is lost, and its memory with it
  }
}

}  // namespace moelink

#endif
