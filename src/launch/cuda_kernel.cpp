#include "launch/cuda_kernel.hpp"

#if MOELINK_HAVE_CUDA

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "base/text.hpp"
#include "jit/compile.hpp"
#include "runtime/cuda_stream.hpp"

namespace moelink {
namespace {

// Makes `context` current while it lives. Nearly always it is already, and then this is one cheap call.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    check_cuda(driver.ctx_get_current(&current), "cuCtxGetCurrent");
    if (current != context) {
      check_cuda(driver.ctx_push_current(context), "cuCtxPushCurrent");
      pushed_ = true;
    }
  }
  ~CurrentContext() {
    if (CUcontext popped = nullptr; pushed_) {
      driver_.ctx_pop_current(&popped);
    }
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

int attribute_of(const CudaDriver& driver, Device device, CUdevice_attribute attribute) {
  CUdevice handle = 0;
  int value = 0;
  check_cuda(driver.device_get(&handle, device.ordinal()), "cuDeviceGet");
  check_cuda(driver.device_get_attribute(&value, attribute, handle), "cuDeviceGetAttribute");
  return value;
}

}  // namespace

CudaKernel::CudaKernel(const CudaDriver& driver, Device device, CUcontext context, const KernelRequest& request,
                       const CompiledKernel& compiled)
    : driver_(driver),
      name_(request.name),
      device_(device),
      context_(context),
      threads_(static_cast<unsigned>(request.threads)) {
  CUmodule module = nullptr;
  check_cuda(driver_.module_load_data(&module, compiled.cubin.data()), "cuModuleLoadData of " + name_);
  check_cuda(driver_.module_get_function(&function_, module, compiled.lowered_name.c_str()),
             "cuModuleGetFunction of " + name_);
  if (driver_.func_load != nullptr) {
    check_cuda(driver_.func_load(function_), "cuFuncLoad of " + name_);
  }
  // Scratch of a launch may be anything up to what the device has. (On drivers without cuFuncLoad this also loads.)
  int static_bytes = 0;
  check_cuda(driver_.func_get_attribute(&static_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_),
             "cuFuncGetAttribute of " + name_);
  max_scratch_bytes_ =
      attribute_of(driver_, device_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) - static_bytes;
  check_cuda(driver_.func_set_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, max_scratch_bytes_),
             "cuFuncSetAttribute of " + name_);
}

CUstream CudaKernel::check(const LaunchShape& shape, StreamView stream) const {
  if (stream.device() != device_) {
    throw Error(ErrorCode::invalid_argument, text(name_, " runs on ", device_.name(), ", but the stream belongs to ",
                                                  stream.device().name(), "; pass a stream of ", device_.name()));
  }
  CUstream handle = cuda_stream_of(stream);
  // What StreamView::cuda was told is only the caller's word.
  CUcontext context = context_;
  if (handle != CU_STREAM_PER_THREAD) {
    check_cuda(driver_.stream_get_ctx(handle, &context), "cuStreamGetCtx");
  }
  if (context != context_) {
    throw Error(ErrorCode::invalid_argument,
                text(name_, " runs in the primary context of ", device_.name(),
                     ", but the stream was created in another; create it while that device is current"));
  }
  if (shape.grid < 1 || shape.scratch_bytes < 0 || shape.scratch_bytes > max_scratch_bytes_) {
    throw Error(ErrorCode::invalid_argument,
                text(name_, " cannot be launched with ", shape.grid, " blocks of ", shape.scratch_bytes,
                     " bytes of scratch; expected at least one block and at most ", max_scratch_bytes_, " bytes"));
  }
  return handle;
}

void CudaKernel::launch(const LaunchShape& shape, const void* args, StreamView stream) const {
  CUstream handle = check(shape, stream);
  CUlaunchAttribute programmatic{};
  programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  programmatic.value.programmaticStreamSerializationAllowed = 1;

  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(shape.grid);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads_;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shape.scratch_bytes);
  config.hStream = handle;
  config.attrs = &programmatic;
  config.numAttrs = shape.programmatic ? 1 : 0;

  // The driver copies the struct before it returns; its interface lacks a const.
  std::array<void*, 1> parameters = {const_cast<void*>(args)};
  const CurrentContext current(driver_, context_);
  if (const CUresult result = driver_.launch_kernel_ex(&config, function_, parameters.data(), nullptr);
      result != CUDA_SUCCESS) {
    check_cuda(result, "cuLaunchKernelEx of " + name_);
  }
}

int CudaKernel::max_blocks_per_sm(int scratch_bytes) const {
  const CurrentContext current(driver_, context_);
  int blocks = 0;
  check_cuda(driver_.occupancy_max_active_blocks_per_multiprocessor(&blocks, function_, static_cast<int>(threads_),
                                                                    static_cast<std::size_t>(scratch_bytes)),
             "cuOccupancyMaxActiveBlocksPerMultiprocessor of " + name_);
  return blocks;
}

std::string architecture_of(const CudaDriver& driver, Device device) {
  return architecture_of(attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                         attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

std::shared_ptr<const LoadedKernel> loaded_cuda_kernel(Device device, const std::string& source_hash,
                                                       const KernelRequest& request, const CompiledKernel& compiled) {
  using Key = std::pair<Device, std::string>;
  static std::mutex mutex;
  // Never destroyed: at the end of a process the driver may be gone before static objects are.
  static auto& kernels = *new std::map<Key, std::shared_ptr<const LoadedKernel>>();
  const std::scoped_lock lock(mutex);
  auto& kernel = kernels[Key(device, source_hash + '\n' + request.header + '\n' + request.expression)];
  if (kernel == nullptr) {
    const CudaDriver& driver = CudaDriver::get();
    const CudaContextScope scope(device.ordinal());
    CUcontext context = nullptr;
    check_cuda(driver.ctx_get_current(&context), "cuCtxGetCurrent");
    kernel = std::make_shared<const CudaKernel>(driver, device, context, request, compiled);
  }
  return kernel;
}

}  // namespace moelink

#endif
