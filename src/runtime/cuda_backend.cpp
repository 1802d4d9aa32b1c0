#include "runtime/cuda_backend.hpp"

#if MOELINK_HAVE_CUDA

#include <cstdint>
#include <string>

#include "base/cuda_driver.hpp"
#include "moelink/error.hpp"
#include "runtime/cuda_stream.hpp"

namespace moelink {

CUstream cuda_stream_of(StreamView stream) {
  if (!stream.device().is_cuda()) {
    throw Error(ErrorCode::invalid_argument,
                "a host stream was given where a CUDA stream is needed; make one with "
                "Stream(Device::cuda(n)) or view yours with StreamView::cuda");
  }
  auto* handle = static_cast<CUstream>(stream.cuda_handle());
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    throw Error(ErrorCode::invalid_argument,
                "the legacy default stream of " + stream.device().name() +
                    " was given; work of several ranks would wait for each other on it: use a stream of your own");
  }
  return handle;
}

namespace cuda {
namespace {

CUdeviceptr address_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

int attribute_of(int ordinal, CUdevice_attribute which) {
  const CudaDriver& driver = CudaDriver::get();
  CUdevice device = 0;
  check_cuda(driver.device_get(&device, ordinal), "cuDeviceGet");
  int value = 0;
  check_cuda(driver.device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

/// For what must not throw: does `release` with the device current, or nothing if the driver is already gone.
template <class Release>
void release_on(int ordinal, Release&& release) noexcept {
  try {
    const CudaContextScope scope(ordinal);
    release(CudaDriver::get());
  } catch (...) {
  }
}

}  // namespace

int device_count() noexcept {
  const CudaDriver* driver = CudaDriver::find();
  int count = 0;
  return driver != nullptr && driver->device_get_count(&count) == CUDA_SUCCESS ? count : 0;
}

void* allocate(int ordinal, std::size_t size_bytes) {
  const CudaContextScope scope(ordinal);
  const CudaDriver& driver = CudaDriver::get();
  CUdeviceptr memory = 0;
  const CUresult result = driver.mem_alloc(&memory, size_bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(driver.mem_get_info(&free_bytes, &total_bytes), "cuMemGetInfo");
    throw Error(ErrorCode::capacity, Device::cuda(ordinal).name() + " has " + std::to_string(free_bytes) + " of " +
                                         std::to_string(total_bytes) + " bytes free, too little for a buffer of " +
                                         std::to_string(size_bytes));
  }
  check_cuda(result, "cuMemAlloc");
  return reinterpret_cast<void*>(memory);
}

void release(int ordinal, void* memory) noexcept {
  release_on(ordinal, [memory](const CudaDriver& driver) { driver.mem_free(address_of(memory)); });
}

void* allocate_pinned(int ordinal, std::size_t size_bytes) {
  const CudaContextScope scope(ordinal);
  void* memory = nullptr;
  // Portable: every context of the process may use it. Unified addressing maps it at its own address.
  check_cuda(
      CudaDriver::get().mem_host_alloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      "cuMemHostAlloc");
  return memory;
}

void release_pinned(int ordinal, void* memory) noexcept {
  release_on(ordinal, [memory](const CudaDriver& driver) { driver.mem_free_host(memory); });
}

std::string unreachable_because(int ordinal, const void* pointer) {
  const CudaContextScope scope(ordinal);
  const CudaDriver& driver = CudaDriver::get();
  unsigned memory_type = 0;
  const CUresult result =
      driver.pointer_get_attribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(pointer));
  if (result == CUDA_ERROR_INVALID_VALUE) {
    // Memory that CUDA has not heard of. Devices with pageable access read it all the same.
    return attribute_of(ordinal, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) != 0
               ? ""
               : "host memory that the device cannot reach";
  }
  check_cuda(result, "cuPointerGetAttribute");
  if (memory_type == CU_MEMORYTYPE_HOST) return "";  // pinned: slow, but legal
  int owner = 0;
  check_cuda(driver.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address_of(pointer)),
             "cuPointerGetAttribute");
  return owner == ordinal ? "" : "memory of " + Device::cuda(owner).name();
}

int num_sms(int ordinal) { return attribute_of(ordinal, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT); }

int max_scratch_bytes(int ordinal) {
  return attribute_of(ordinal, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
}

void* create_stream(int ordinal) {
  const CudaContextScope scope(ordinal);
  CUstream stream = nullptr;
  check_cuda(CudaDriver::get().stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

void destroy_stream(int ordinal, void* stream) noexcept {
  release_on(ordinal, [stream](const CudaDriver& driver) { driver.stream_destroy(static_cast<CUstream>(stream)); });
}

void synchronize_stream(StreamView stream) {
  CUstream handle = cuda_stream_of(stream);
  const CudaContextScope scope(stream.device().ordinal());
  check_cuda(CudaDriver::get().stream_synchronize(handle), "cuStreamSynchronize");
}

void copy(void* destination, const void* source, std::size_t size_bytes, StreamView stream) {
  CUstream handle = cuda_stream_of(stream);
  const CudaContextScope scope(stream.device().ordinal());
  check_cuda(CudaDriver::get().memcpy_async(address_of(destination), address_of(source), size_bytes, handle),
             "cuMemcpyAsync");
}

void fill(void* destination, unsigned char value, std::size_t size_bytes, StreamView stream) {
  CUstream handle = cuda_stream_of(stream);
  const CudaContextScope scope(stream.device().ordinal());
  check_cuda(CudaDriver::get().memset_d8_async(address_of(destination), value, size_bytes, handle), "cuMemsetD8Async");
}

void* create_event(int ordinal) {
  const CudaContextScope scope(ordinal);
  CUevent event = nullptr;
  check_cuda(CudaDriver::get().event_create(&event, CU_EVENT_DEFAULT), "cuEventCreate");
  return event;
}

void destroy_event(int ordinal, void* event) noexcept {
  release_on(ordinal, [event](const CudaDriver& driver) { driver.event_destroy(static_cast<CUevent>(event)); });
}

void record_event(void* event, StreamView stream) {
  CUstream handle = cuda_stream_of(stream);
  const CudaContextScope scope(stream.device().ordinal());
  check_cuda(CudaDriver::get().event_record(static_cast<CUevent>(event), handle), "cuEventRecord");
}

void synchronize_event(int ordinal, void* event) {
  const CudaContextScope scope(ordinal);
  check_cuda(CudaDriver::get().event_synchronize(static_cast<CUevent>(event)), "cuEventSynchronize");
}

double elapsed_us(int ordinal, void* start, void* stop) {
  const CudaContextScope scope(ordinal);
  float milliseconds = 0.0F;
  check_cuda(
      CudaDriver::get().event_elapsed_time(&milliseconds, static_cast<CUevent>(start), static_cast<CUevent>(stop)),
      "cuEventElapsedTime");
  return 1000.0 * static_cast<double>(milliseconds);
}

void* record_graph(StreamView stream, const std::function<void()>& body) {
  CUstream handle = cuda_stream_of(stream);
  const CudaContextScope scope(stream.device().ordinal());
  const CudaDriver& driver = CudaDriver::get();
  check_cuda(driver.stream_begin_capture(handle, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  CUgraph graph = nullptr;
  try {
    body();
  } catch (...) {
    // Ends the capture whatever state it is in; the stream is usable again afterwards.
    if (driver.stream_end_capture(handle, &graph) == CUDA_SUCCESS && graph != nullptr) {
      driver.graph_destroy(graph);
    }
    throw;
  }
  check_cuda(driver.stream_end_capture(handle, &graph), "cuStreamEndCapture");
  CUgraphExec executable = nullptr;
  const CUresult instantiated = driver.graph_instantiate(&executable, graph, 0);
  driver.graph_destroy(graph);
  check_cuda(instantiated, "cuGraphInstantiate");
  try {
    // Uploaded before the first launch: an upload between two launches that wait for each other would hang both.
    check_cuda(driver.graph_upload(executable, handle), "cuGraphUpload");
    check_cuda(driver.stream_synchronize(handle), "cuStreamSynchronize");
  } catch (...) {
    driver.graph_exec_destroy(executable);
    throw;
  }
  return executable;
}

void launch_graph(void* graph, StreamView stream) {
  CUstream handle = cuda_stream_of(stream);
  const CudaContextScope scope(stream.device().ordinal());
  check_cuda(CudaDriver::get().graph_launch(static_cast<CUgraphExec>(graph), handle), "cuGraphLaunch");
}

void destroy_graph(int ordinal, void* graph) noexcept {
  release_on(ordinal,
             [graph](const CudaDriver& driver) { driver.graph_exec_destroy(static_cast<CUgraphExec>(graph)); });
}

}  // namespace cuda
}  // namespace moelink

#endif
