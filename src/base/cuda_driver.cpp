#include "base/cuda_driver.hpp"

#if MOELINK_HAVE_CUDA

#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <type_traits>

#include "moelink/error.hpp"

namespace moelink {
namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

struct Loaded {
  CudaDriver driver;
  bool usable = false;
  std::string reason;
};

/// `version`: the toolkit's that brought this prototype.
template <class Function>
void resolve(GetProcAddress get, Function*& slot, const char* name, int version) {
  void* symbol = nullptr;
  if (get(name, &symbol, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS) {
    slot = reinterpret_cast<Function*>(symbol);
  }
}

// The driver gives the newest function of that name up to the version asked for, which may take more parameters than
// the one that cuda.h declares by it, and write through what it finds in their registers. So each is asked for by the
// version whose prototype it is called by.
#define MOELINK_RESOLVE(slot, name, version)                                                             \
  static_assert(std::is_same_v<decltype(d.slot), PFN_##name##_v##version>, #name " of another version"); \
  resolve(get, d.slot, #name, version)

void resolve_all(GetProcAddress get, CudaDriver& d) {
  MOELINK_RESOLVE(init, cuInit, 2000);
  MOELINK_RESOLVE(driver_get_version, cuDriverGetVersion, 2020);
  MOELINK_RESOLVE(get_error_name, cuGetErrorName, 6000);
  MOELINK_RESOLVE(get_error_string, cuGetErrorString, 6000);
  MOELINK_RESOLVE(device_get_count, cuDeviceGetCount, 2000);
  MOELINK_RESOLVE(device_get, cuDeviceGet, 2000);
  MOELINK_RESOLVE(device_get_name, cuDeviceGetName, 2000);
  MOELINK_RESOLVE(device_get_attribute, cuDeviceGetAttribute, 2000);
  MOELINK_RESOLVE(device_get_pci_bus_id, cuDeviceGetPCIBusId, 4010);
  MOELINK_RESOLVE(device_get_uuid, cuDeviceGetUuid, 11040);
  MOELINK_RESOLVE(device_can_access_peer, cuDeviceCanAccessPeer, 4000);
  MOELINK_RESOLVE(device_get_p2p_attribute, cuDeviceGetP2PAttribute, 8000);
  MOELINK_RESOLVE(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000);
  MOELINK_RESOLVE(device_primary_ctx_release, cuDevicePrimaryCtxRelease, 11000);
  MOELINK_RESOLVE(ctx_get_current, cuCtxGetCurrent, 4000);
  MOELINK_RESOLVE(ctx_set_current, cuCtxSetCurrent, 4000);
  MOELINK_RESOLVE(ctx_push_current, cuCtxPushCurrent, 4000);
  MOELINK_RESOLVE(ctx_pop_current, cuCtxPopCurrent, 4000);
  MOELINK_RESOLVE(ctx_enable_peer_access, cuCtxEnablePeerAccess, 4000);
  MOELINK_RESOLVE(ctx_synchronize, cuCtxSynchronize, 2000);
  MOELINK_RESOLVE(mem_alloc, cuMemAlloc, 3020);
  MOELINK_RESOLVE(mem_free, cuMemFree, 3020);
  MOELINK_RESOLVE(mem_get_info, cuMemGetInfo, 3020);
  MOELINK_RESOLVE(mem_host_alloc, cuMemHostAlloc, 2020);
  MOELINK_RESOLVE(mem_free_host, cuMemFreeHost, 2000);
  MOELINK_RESOLVE(mem_host_get_device_pointer, cuMemHostGetDevicePointer, 3020);
  MOELINK_RESOLVE(mem_host_register, cuMemHostRegister, 6050);
  MOELINK_RESOLVE(mem_host_unregister, cuMemHostUnregister, 4000);
  MOELINK_RESOLVE(memcpy_async, cuMemcpyAsync, 4000);
  MOELINK_RESOLVE(memcpy, cuMemcpy, 4000);
  MOELINK_RESOLVE(memset_d8_async, cuMemsetD8Async, 3020);
  MOELINK_RESOLVE(memset_d8, cuMemsetD8, 3020);
  MOELINK_RESOLVE(pointer_get_attribute, cuPointerGetAttribute, 4000);
  MOELINK_RESOLVE(mem_get_allocation_granularity, cuMemGetAllocationGranularity, 10020);
  MOELINK_RESOLVE(mem_create, cuMemCreate, 10020);
  MOELINK_RESOLVE(mem_release, cuMemRelease, 10020);
  MOELINK_RESOLVE(mem_address_reserve, cuMemAddressReserve, 10020);
  MOELINK_RESOLVE(mem_address_free, cuMemAddressFree, 10020);
  MOELINK_RESOLVE(mem_map, cuMemMap, 10020);
  MOELINK_RESOLVE(mem_unmap, cuMemUnmap, 10020);
  MOELINK_RESOLVE(mem_set_access, cuMemSetAccess, 10020);
  MOELINK_RESOLVE(mem_export_to_shareable_handle, cuMemExportToShareableHandle, 10020);
  MOELINK_RESOLVE(mem_import_from_shareable_handle, cuMemImportFromShareableHandle, 10020);
  MOELINK_RESOLVE(mem_get_handle_for_address_range, cuMemGetHandleForAddressRange, 11070);
  MOELINK_RESOLVE(flush_gpu_direct_rdma_writes, cuFlushGPUDirectRDMAWrites, 11030);
  MOELINK_RESOLVE(ipc_get_mem_handle, cuIpcGetMemHandle, 4010);
  MOELINK_RESOLVE(ipc_open_mem_handle, cuIpcOpenMemHandle, 11000);
  MOELINK_RESOLVE(ipc_close_mem_handle, cuIpcCloseMemHandle, 4010);
  MOELINK_RESOLVE(multicast_create, cuMulticastCreate, 12010);
  MOELINK_RESOLVE(multicast_add_device, cuMulticastAddDevice, 12010);
  MOELINK_RESOLVE(multicast_bind_mem, cuMulticastBindMem, 12010);
  MOELINK_RESOLVE(multicast_unbind, cuMulticastUnbind, 12010);
  MOELINK_RESOLVE(multicast_get_granularity, cuMulticastGetGranularity, 12010);
  MOELINK_RESOLVE(stream_create_with_priority, cuStreamCreateWithPriority, 5050);
  MOELINK_RESOLVE(stream_create, cuStreamCreate, 2000);
  MOELINK_RESOLVE(stream_destroy, cuStreamDestroy, 4000);
  MOELINK_RESOLVE(stream_synchronize, cuStreamSynchronize, 2000);
  MOELINK_RESOLVE(stream_query, cuStreamQuery, 2000);
  MOELINK_RESOLVE(stream_wait_event, cuStreamWaitEvent, 3020);
  MOELINK_RESOLVE(stream_is_capturing, cuStreamIsCapturing, 10000);
  MOELINK_RESOLVE(stream_get_ctx, cuStreamGetCtx, 9020);
  MOELINK_RESOLVE(stream_begin_capture, cuStreamBeginCapture, 10010);
  MOELINK_RESOLVE(stream_end_capture, cuStreamEndCapture, 10000);
  MOELINK_RESOLVE(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, 10010);
  MOELINK_RESOLVE(event_create, cuEventCreate, 2000);
  MOELINK_RESOLVE(event_destroy, cuEventDestroy, 4000);
  MOELINK_RESOLVE(event_record, cuEventRecord, 2000);
  MOELINK_RESOLVE(event_synchronize, cuEventSynchronize, 2000);
  MOELINK_RESOLVE(event_query, cuEventQuery, 2000);
  MOELINK_RESOLVE(event_elapsed_time, cuEventElapsedTime, 12080);
  MOELINK_RESOLVE(graph_instantiate, cuGraphInstantiateWithFlags, 11040);
  MOELINK_RESOLVE(graph_upload, cuGraphUpload, 11010);
  MOELINK_RESOLVE(graph_launch, cuGraphLaunch, 10000);
  MOELINK_RESOLVE(graph_destroy, cuGraphDestroy, 10000);
  MOELINK_RESOLVE(graph_exec_destroy, cuGraphExecDestroy, 10000);
  MOELINK_RESOLVE(module_load_data, cuModuleLoadData, 2000);
  MOELINK_RESOLVE(module_unload, cuModuleUnload, 2000);
  MOELINK_RESOLVE(module_get_function, cuModuleGetFunction, 2000);
  MOELINK_RESOLVE(func_set_attribute, cuFuncSetAttribute, 9000);
  MOELINK_RESOLVE(func_get_attribute, cuFuncGetAttribute, 2020);
  MOELINK_RESOLVE(func_load, cuFuncLoad, 12040);
  MOELINK_RESOLVE(occupancy_max_active_blocks_per_multiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050);
  MOELINK_RESOLVE(launch_kernel_ex, cuLaunchKernelEx, 11060);
}
#undef MOELINK_RESOLVE

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
