#include "base/cuda_driver.hpp"

#if MOELINK_HAVE_CUDA

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>

#include "moelink/error.hpp"

namespace moelink {
namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

struct Loaded {
  CudaDriver driver;
  bool usable = false;
  std::string reason;
};

template <class Function>
void resolve(GetProcAddress get, Function*& slot, const char* name) {
  void* symbol = nullptr;
  if (get(name, &symbol, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS) {
    slot = reinterpret_cast<Function*>(symbol);
  }
}

void resolve_all(GetProcAddress get, CudaDriver& d) {
  resolve(get, d.init, "cuInit");
  resolve(get, d.driver_get_version, "cuDriverGetVersion");
  resolve(get, d.get_error_name, "cuGetErrorName");
  resolve(get, d.get_error_string, "cuGetErrorString");
  resolve(get, d.device_get_count, "cuDeviceGetCount");
  resolve(get, d.device_get, "cuDeviceGet");
  resolve(get, d.device_get_name, "cuDeviceGetName");
  resolve(get, d.device_get_attribute, "cuDeviceGetAttribute");
  resolve(get, d.device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  resolve(get, d.device_get_uuid, "cuDeviceGetUuid");
  resolve(get, d.device_can_access_peer, "cuDeviceCanAccessPeer");
  resolve(get, d.device_get_p2p_attribute, "cuDeviceGetP2PAttribute");
  resolve(get, d.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  resolve(get, d.device_primary_ctx_release, "cuDevicePrimaryCtxRelease");
  resolve(get, d.ctx_get_current, "cuCtxGetCurrent");
  resolve(get, d.ctx_set_current, "cuCtxSetCurrent");
  resolve(get, d.ctx_push_current, "cuCtxPushCurrent");
  resolve(get, d.ctx_pop_current, "cuCtxPopCurrent");
  resolve(get, d.ctx_enable_peer_access, "cuCtxEnablePeerAccess");
  resolve(get, d.ctx_synchronize, "cuCtxSynchronize");
  resolve(get, d.mem_alloc, "cuMemAlloc");
  resolve(get, d.mem_free, "cuMemFree");
  resolve(get, d.mem_get_info, "cuMemGetInfo");
  resolve(get, d.mem_host_alloc, "cuMemHostAlloc");
  resolve(get, d.mem_free_host, "cuMemFreeHost");
  resolve(get, d.mem_host_get_device_pointer, "cuMemHostGetDevicePointer");
  resolve(get, d.mem_host_register, "cuMemHostRegister");
  resolve(get, d.mem_host_unregister, "cuMemHostUnregister");
  resolve(get, d.memcpy_async, "cuMemcpyAsync");
  resolve(get, d.memcpy, "cuMemcpy");
  resolve(get, d.memset_d8_async, "cuMemsetD8Async");
  resolve(get, d.memset_d8, "cuMemsetD8");
  resolve(get, d.pointer_get_attribute, "cuPointerGetAttribute");
  resolve(get, d.mem_get_allocation_granularity, "cuMemGetAllocationGranularity");
  resolve(get, d.mem_create, "cuMemCreate");
  resolve(get, d.mem_release, "cuMemRelease");
  resolve(get, d.mem_address_reserve, "cuMemAddressReserve");
  resolve(get, d.mem_address_free, "cuMemAddressFree");
  resolve(get, d.mem_map, "cuMemMap");
  resolve(get, d.mem_unmap, "cuMemUnmap");
  resolve(get, d.mem_set_access, "cuMemSetAccess");
  resolve(get, d.mem_export_to_shareable_handle, "cuMemExportToShareableHandle");
  resolve(get, d.mem_import_from_shareable_handle, "cuMemImportFromShareableHandle");
  resolve(get, d.mem_get_handle_for_address_range, "cuMemGetHandleForAddressRange");
  resolve(get, d.flush_gpu_direct_rdma_writes, "cuFlushGPUDirectRDMAWrites");
  resolve(get, d.ipc_get_mem_handle, "cuIpcGetMemHandle");
  resolve(get, d.ipc_open_mem_handle, "cuIpcOpenMemHandle");
  resolve(get, d.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  resolve(get, d.multicast_create, "cuMulticastCreate");
  resolve(get, d.multicast_add_device, "cuMulticastAddDevice");
  resolve(get, d.multicast_bind_mem, "cuMulticastBindMem");
  resolve(get, d.multicast_unbind, "cuMulticastUnbind");
  resolve(get, d.multicast_get_granularity, "cuMulticastGetGranularity");
  resolve(get, d.stream_create_with_priority, "cuStreamCreateWithPriority");
  resolve(get, d.stream_create, "cuStreamCreate");
  resolve(get, d.stream_destroy, "cuStreamDestroy");
  resolve(get, d.stream_synchronize, "cuStreamSynchronize");
  resolve(get, d.stream_query, "cuStreamQuery");
  resolve(get, d.stream_wait_event, "cuStreamWaitEvent");
  resolve(get, d.stream_is_capturing, "cuStreamIsCapturing");
  resolve(get, d.stream_get_ctx, "cuStreamGetCtx");
  resolve(get, d.stream_begin_capture, "cuStreamBeginCapture");
  resolve(get, d.stream_end_capture, "cuStreamEndCapture");
  resolve(get, d.thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode");
  resolve(get, d.event_create, "cuEventCreate");
  resolve(get, d.event_destroy, "cuEventDestroy");
  resolve(get, d.event_record, "cuEventRecord");
  resolve(get, d.event_synchronize, "cuEventSynchronize");
  resolve(get, d.event_query, "cuEventQuery");
  resolve(get, d.event_elapsed_time, "cuEventElapsedTime");
  resolve(get, d.graph_instantiate, "cuGraphInstantiate");
  resolve(get, d.graph_upload, "cuGraphUpload");
  resolve(get, d.graph_launch, "cuGraphLaunch");
  resolve(get, d.graph_destroy, "cuGraphDestroy");
  resolve(get, d.graph_exec_destroy, "cuGraphExecDestroy");
  resolve(get, d.module_load_data, "cuModuleLoadData");
  resolve(get, d.module_unload, "cuModuleUnload");
  resolve(get, d.module_get_function, "cuModuleGetFunction");
  resolve(get, d.func_set_attribute, "cuFuncSetAttribute");
  resolve(get, d.func_get_attribute, "cuFuncGetAttribute");
  resolve(get, d.func_load, "cuFuncLoad");
  resolve(get, d.occupancy_max_active_blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  resolve(get, d.launch_kernel_ex, "cuLaunchKernelEx");
}

Loaded load() {
  Loaded loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.reason = "libcuda.so.1 is not installed (no NVIDIA driver)";
    return loaded;
  }
  auto* get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    loaded.reason = "the NVIDIA driver is older than CUDA 12 (no cuGetProcAddress_v2)";
    return loaded;
  }
  resolve_all(get, loaded.driver);
  // Ranks that share a device must not queue behind each other's waiting kernels. The default is 8 hardware queues; the
  // driver reads this when it initialises. A value that the user has set stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  if (const CUresult result = loaded.driver.init(0); result != CUDA_SUCCESS) {
    loaded.reason = "cuInit failed with error " + std::to_string(static_cast<int>(result));
  } else if (loaded.driver.device_get_count(&count) != CUDA_SUCCESS || count == 0) {
    loaded.reason = "the NVIDIA driver sees no device";
  } else {
    loaded.usable = true;
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded instance = load();
  return instance;
}

CUcontext primary_context(int ordinal) {
  static std::mutex mutex;
  static std::array<CUcontext, 64> contexts{};
  const CudaDriver& driver = CudaDriver::get();
  int count = 0;
  check_cuda(driver.device_get_count(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count || ordinal >= static_cast<int>(contexts.size())) {
    throw Error(ErrorCode::invalid_argument, "CUDA device " + std::to_string(ordinal) +
                                                 " does not exist; this machine has " + std::to_string(count));
  }
  const std::scoped_lock lock(mutex);
  CUcontext& context = contexts[static_cast<std::size_t>(ordinal)];
  if (context == nullptr) {
    CUdevice device = 0;
    check_cuda(driver.device_get(&device, ordinal), "cuDeviceGet");
    check_cuda(driver.device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
  }
  return context;
}

}  // namespace

const CudaDriver* CudaDriver::find() noexcept {
  try {
    return loaded().usable ? &loaded().driver : nullptr;
  } catch (...) {
    return nullptr;
  }
}

const CudaDriver& CudaDriver::get() {
  if (!loaded().usable) {
    throw Error(ErrorCode::unsupported, "no CUDA device can be used: " + loaded().reason);
  }
  return loaded().driver;
}

void check_cuda(CUresult result, std::string_view call, const std::source_location& where) {
  if (result == CUDA_SUCCESS) {
    return;
  }
  const char* name = nullptr;
  const char* sentence = nullptr;
  if (const CudaDriver* driver = CudaDriver::find(); driver != nullptr) {
    driver->get_error_name(result, &name);
    driver->get_error_string(result, &sentence);
  }
  throw Error(ErrorCode::cuda,
              std::string(call) + " failed: " + (name != nullptr ? name : std::to_string(static_cast<int>(result))) +
                  (sentence != nullptr ? std::string(" (") + sentence + ")" : std::string()),
              where);
}

CudaContextScope::CudaContextScope(int ordinal) {
  const CudaDriver& driver = CudaDriver::get();
  check_cuda(driver.ctx_push_current(primary_context(ordinal)), "cuCtxPushCurrent");
  driver.thread_exchange_stream_capture_mode(&capture_mode_);
}

CudaContextScope::~CudaContextScope() {
  const CudaDriver& driver = CudaDriver::get();
  driver.thread_exchange_stream_capture_mode(&capture_mode_);
  CUcontext popped = nullptr;
  driver.ctx_pop_current(&popped);
}

}  // namespace moelink

#endif
