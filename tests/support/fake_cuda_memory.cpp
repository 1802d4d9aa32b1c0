// cuMemAlloc, CUDA IPC, copies.
#include "fake_cuda_state.hpp"

#if MOELINK_HAVE_CUDA

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

namespace moelink::test {
namespace {

CUdeviceptr map_file(const FakeObject& object) {
  void* data = ::mmap(nullptr, object.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, object.file.get(), 0);
  return data == MAP_FAILED ? 0 : reinterpret_cast<CUdeviceptr>(data);
}

void unmap_file(CUdeviceptr address, const FakeObject& object) {
  ::munmap(reinterpret_cast<void*>(address), object.size_bytes);
}

bool has_context() {
  if (fake_contexts().empty()) {
    fake().broken("a call that needs a current context had none");
  }
  return !fake_contexts().empty();
}

CUresult allocate(CUdeviceptr* address, std::size_t size_bytes) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemAlloc"); result != CUDA_SUCCESS || !has_context()) {
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
  }
  if (size_bytes > (std::size_t{1} << 40)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto object = fake().make_object(size_bytes, 0);
  *address = map_file(*object);
  // Fresh memory of a real device holds whatever was there.
  std::memset(reinterpret_cast<void*>(*address), 0xa5, std::min<std::size_t>(size_bytes, 1 << 16));
  fake().linear.emplace(*address, std::move(object));
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr address) {
  const std::scoped_lock lock(fake().mutex);
  fake().leave("cuMemFree");
  const auto found = fake().linear.find(address);
  if (found == fake().linear.end()) {
    fake().broken("cuMemFree of what was not allocated");
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& [opened, object] : fake().ipc) {
    if (object == found->second) {
      fake().broken("cuMemFree of memory that somebody has open over IPC");
    }
  }
  unmap_file(address, *found->second);
  fake().linear.erase(found);
  return CUDA_SUCCESS;
}

CUresult get_ipc_handle(CUipcMemHandle* handle, CUdeviceptr address) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuIpcGetMemHandle"); result != CUDA_SUCCESS) {
    return result;
  }
  const auto found = fake().linear.find(address);
  if (found == fake().linear.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct stat status {};
  ::fstat(found->second->file.get(), &status);
  *handle = {};
  std::memcpy(handle->reserved, &status.st_ino, sizeof(status.st_ino));
  return CUDA_SUCCESS;
}

CUresult open_ipc_handle(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuIpcOpenMemHandle"); result != CUDA_SUCCESS || !has_context()) {
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
  }
  ino_t inode = 0;
  std::memcpy(&inode, handle.reserved, sizeof(inode));
  const auto found = fake().objects.find(inode);
  auto object = found != fake().objects.end() ? found->second.lock() : nullptr;
  if (object == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = map_file(*object);
  fake().ipc.emplace(*address, std::move(object));
  return CUDA_SUCCESS;
}

CUresult close_ipc_handle(CUdeviceptr address) {
  const std::scoped_lock lock(fake().mutex);
  fake().leave("cuIpcCloseMemHandle");
  const auto found = fake().ipc.find(address);
  if (found == fake().ipc.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unmap_file(address, *found->second);
  fake().ipc.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

void fill_memory(CudaDriver& d) {
  d.mem_alloc = allocate;
  d.mem_free = release;
  d.ipc_get_mem_handle = get_ipc_handle;
  d.ipc_open_mem_handle = open_ipc_handle;
  d.ipc_close_mem_handle = close_ipc_handle;
  d.memset_d8_async = [](CUdeviceptr address, unsigned char value, std::size_t size_bytes, CUstream) {
    const std::scoped_lock lock(fake().mutex);
    if (const CUresult result = fake().enter("cuMemsetD8Async"); result != CUDA_SUCCESS) {
      return result;
    }
    std::memset(reinterpret_cast<void*>(address), value, size_bytes);
    return CUDA_SUCCESS;
  };
  d.memcpy_async = [](CUdeviceptr destination, CUdeviceptr source, std::size_t size_bytes, CUstream) {
    const std::scoped_lock lock(fake().mutex);
    if (const CUresult result = fake().enter("cuMemcpyAsync"); result != CUDA_SUCCESS) {
      return result;
    }
    std::memcpy(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source), size_bytes);
    return CUDA_SUCCESS;
  };
}

}  // namespace moelink::test

#endif
