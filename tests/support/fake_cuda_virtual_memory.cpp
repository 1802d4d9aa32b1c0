// cuMemCreate and its family, cuMulticast*.
#include "fake_cuda_state.hpp"

#if MOELINK_HAVE_CUDA

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace moelink::test {
namespace {

constexpr std::size_t kGranularity = FakeCuda::kGranularityBytes;

std::shared_ptr<FakeObject> object_of(CUmemGenericAllocationHandle handle) {
  const auto found = fake().handles.find(handle);
  return found != fake().handles.end() ? found->second : nullptr;
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size_bytes, const CUmemAllocationProp* properties,
                unsigned long long) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemCreate"); result != CUDA_SUCCESS) {
    return result;
  }
  if (size_bytes % kGranularity != 0) {
    fake().broken("cuMemCreate of a size that is not a multiple of the granularity");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (size_bytes > (std::size_t{1} << 40)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const FakeDevice& device = fake().devices[static_cast<std::size_t>(properties->location.id)];
  if ((properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC && !device.fabric) ||
      (properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !device.descriptors)) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  auto object = fake().make_object(size_bytes, properties->location.id);
  // Fresh memory of a real device holds whatever was there.
  const std::vector<unsigned char> dirt(1 << 16, 0xa5);
  if (::pwrite(object->file.get(), dirt.data(), dirt.size(), 0) != static_cast<ssize_t>(dirt.size())) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = fake().add_handle(std::move(object));
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  const std::scoped_lock lock(fake().mutex);
  fake().leave("cuMemRelease");
  if (fake().handles.erase(handle) == 0) {
    fake().broken("cuMemRelease of what is no handle");
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult export_handle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemExportToShareableHandle"); result != CUDA_SUCCESS) {
    return result;
  }
  const auto object = object_of(handle);
  if (object == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    *static_cast<int*>(out) = ::dup(object->file.get());  // without FD_CLOEXEC: nothing promises it
    return CUDA_SUCCESS;
  }
  struct stat status {};
  ::fstat(object->file.get(), &status);
  std::memcpy(out, &status.st_ino, sizeof(status.st_ino));
  return CUDA_SUCCESS;
}

CUresult import_handle(CUmemGenericAllocationHandle* handle, void* shared, CUmemAllocationHandleType type) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemImportFromShareableHandle"); result != CUDA_SUCCESS) {
    return result;
  }
  ino_t inode = 0;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    struct stat status {};
    if (::fstat(static_cast<int>(reinterpret_cast<std::intptr_t>(shared)), &status) != 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    inode = status.st_ino;
  } else {
    std::memcpy(&inode, shared, sizeof(inode));
  }
  const auto found = fake().objects.find(inode);
  auto object = found != fake().objects.end() ? found->second.lock() : nullptr;
  if (object == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *handle = fake().add_handle(std::move(object));
  return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr* address, std::size_t size_bytes, std::size_t alignment, CUdeviceptr, unsigned long long) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemAddressReserve"); result != CUDA_SUCCESS) {
    return result;
  }
  const std::size_t wanted = std::max(alignment, kGranularity);
  void* raw = ::mmap(nullptr, size_bytes + wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* const begin = static_cast<std::byte*>(raw);
  auto* const aligned = begin + (wanted - reinterpret_cast<std::uintptr_t>(begin) % wanted) % wanted;
  if (aligned != begin) {
    ::munmap(begin, static_cast<std::size_t>(aligned - begin));
  }
  ::munmap(aligned + size_bytes, static_cast<std::size_t>(begin + wanted - aligned));
  *address = reinterpret_cast<CUdeviceptr>(aligned);
  fake().reservations.emplace(*address, FakeReservation{size_bytes, nullptr});
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr address, std::size_t size_bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemMap"); result != CUDA_SUCCESS) {
    return result;
  }
  const auto found = fake().reservations.find(address);
  const auto object = object_of(handle);
  if (found == fake().reservations.end() || found->second.mapped != nullptr || object == nullptr || offset != 0 ||
      size_bytes != found->second.size_bytes || size_bytes > object->size_bytes) {
    fake().broken("cuMemMap of a range that is not reserved, not free or larger than the memory");
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.mapped = object;
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, std::size_t size_bytes, const CUmemAccessDesc* access, std::size_t count) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMemSetAccess"); result != CUDA_SUCCESS) {
    return result;
  }
  const auto found = fake().reservations.find(address);
  if (found == fake().reservations.end() || found->second.mapped == nullptr || count != 1 ||
      access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    fake().broken("cuMemSetAccess of a range that is not mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::mmap(reinterpret_cast<void*>(address), size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
         found->second.mapped->file.get(), 0);
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr address, std::size_t size_bytes) {
  const std::scoped_lock lock(fake().mutex);
  fake().leave("cuMemUnmap");
  const auto found = fake().reservations.find(address);
  if (found == fake().reservations.end() || found->second.mapped == nullptr) {
    fake().broken("cuMemUnmap of what is not mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.mapped = nullptr;
  ::mmap(reinterpret_cast<void*>(address), size_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

CUresult free_address(CUdeviceptr address, std::size_t size_bytes) {
  const std::scoped_lock lock(fake().mutex);
  fake().leave("cuMemAddressFree");
  const auto found = fake().reservations.find(address);
  if (found == fake().reservations.end() || found->second.mapped != nullptr) {
    fake().broken("cuMemAddressFree of a range that is not reserved or still mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::munmap(reinterpret_cast<void*>(address), size_bytes);
  fake().reservations.erase(found);
  return CUDA_SUCCESS;
}

CUresult multicast_create(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMulticastCreate"); result != CUDA_SUCCESS) {
    return result;
  }
  auto object = fake().make_object(properties->size, -1);
  object->is_multicast = true;
  object->num_devices = properties->numDevices;
  *handle = fake().add_handle(std::move(object));
  return CUDA_SUCCESS;
}

CUresult multicast_add_device(CUmemGenericAllocationHandle handle, CUdevice device) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMulticastAddDevice"); result != CUDA_SUCCESS) {
    return result;
  }
  const auto object = object_of(handle);
  if (object == nullptr || !object->is_multicast || object->joined.size() == object->num_devices) {
    fake().broken("cuMulticastAddDevice of a device too many, or to what is no multicast object");
    return CUDA_ERROR_INVALID_VALUE;
  }
  object->joined.push_back(device);
  return CUDA_SUCCESS;
}

CUresult multicast_bind(CUmemGenericAllocationHandle handle, std::size_t, CUmemGenericAllocationHandle memory,
                        std::size_t, std::size_t size_bytes, unsigned long long) {
  const std::scoped_lock lock(fake().mutex);
  if (const CUresult result = fake().enter("cuMulticastBindMem"); result != CUDA_SUCCESS) {
    return result;
  }
  const auto object = object_of(handle);
  const auto bound = object_of(memory);
  if (object == nullptr || bound == nullptr || object->joined.size() != object->num_devices) {
    fake().broken("cuMulticastBindMem before every device was added");
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (size_bytes > bound->size_bytes || size_bytes % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  object->bound.push_back(bound->device);
  return CUDA_SUCCESS;
}

CUresult multicast_unbind(CUmemGenericAllocationHandle handle, CUdevice device, std::size_t, std::size_t) {
  const std::scoped_lock lock(fake().mutex);
  fake().leave("cuMulticastUnbind");
  const auto object = object_of(handle);
  if (object == nullptr || std::erase(object->bound, device) != 1) {
    fake().broken("cuMulticastUnbind of what is not bound");
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

void fill_virtual_memory(CudaDriver& d) {
  d.mem_get_allocation_granularity = [](std::size_t* granularity, const CUmemAllocationProp*,
                                        CUmemAllocationGranularity_flags) {
    const std::scoped_lock lock(fake().mutex);
    *granularity = kGranularity;
    return fake().enter("cuMemGetAllocationGranularity");
  };
  d.mem_create = create;
  d.mem_release = release;
  d.mem_export_to_shareable_handle = export_handle;
  d.mem_import_from_shareable_handle = import_handle;
  d.mem_address_reserve = reserve;
  d.mem_map = map;
  d.mem_set_access = set_access;
  d.mem_unmap = unmap;
  d.mem_address_free = free_address;
}

void fill_multicast(CudaDriver& d) {
  d.multicast_get_granularity = [](std::size_t* granularity, const CUmulticastObjectProp*,
                                   CUmulticastGranularity_flags) {
    const std::scoped_lock lock(fake().mutex);
    *granularity = kGranularity;
    return fake().enter("cuMulticastGetGranularity");
  };
  d.multicast_create = multicast_create;
  d.multicast_add_device = multicast_add_device;
  d.multicast_bind_mem = multicast_bind;
  d.multicast_unbind = multicast_unbind;
}

}  // namespace moelink::test

#endif
