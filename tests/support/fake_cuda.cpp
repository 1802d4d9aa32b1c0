#include "fake_cuda.hpp"

#if MOELINK_HAVE_CUDA

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "fake_cuda_state.hpp"

namespace moelink::test {
namespace {

FakeCudaState* living = nullptr;

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 0x100); }

void add_line(std::string& lines, long count, const char* what) {
  if (count != 0) {
    lines += std::to_string(count) + " " + what + "\n";
  }
}

}  // namespace

FakeCudaState& fake() {
  if (living == nullptr) {
    std::fputs("a call reached the fake CUDA driver after its end\n", stderr);
    std::abort();
  }
  return *living;
}

std::vector<CUcontext>& fake_contexts() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

CUresult FakeCudaState::enter(const char* name) {
  calls.emplace_back(name);
  ++num_calls;
  return countdown > 0 && --countdown == 0 ? failure : CUDA_SUCCESS;
}

std::shared_ptr<FakeObject> FakeCudaState::make_object(std::size_t size_bytes, int device) {
  auto object = std::make_shared<FakeObject>();
  object->file = UniqueFd(::memfd_create("moelink-fake", MFD_CLOEXEC));
  object->size_bytes = size_bytes;
  object->device = device;
  struct stat status {};
  if (::ftruncate(object->file.get(), static_cast<off_t>(size_bytes)) != 0 ||
      ::fstat(object->file.get(), &status) != 0) {
    return nullptr;
  }
  objects[status.st_ino] = object;
  return object;
}

CUmemGenericAllocationHandle FakeCudaState::add_handle(std::shared_ptr<FakeObject> object) {
  handles.emplace(++next_handle, std::move(object));
  return next_handle;
}

void fill_devices(CudaDriver& d) {
  d.device_get_count = [](int* count) { return *count = static_cast<int>(fake().devices.size()), CUDA_SUCCESS; };
  d.device_get = [](CUdevice* device, int ordinal) {
    if (ordinal < 0 || ordinal >= static_cast<int>(fake().devices.size())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    return *device = ordinal, CUDA_SUCCESS;
  };
  d.device_get_uuid = [](CUuuid* uuid, CUdevice device) {
    *uuid = {};
    const std::uint8_t chosen = fake().devices[static_cast<std::size_t>(device)].uuid;
    uuid->bytes[0] = static_cast<char>(chosen != 0 ? chosen : device + 1);
    return CUDA_SUCCESS;
  };
  d.device_get_pci_bus_id = [](char* text, int size, CUdevice device) {
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device));
    return CUDA_SUCCESS;
  };
  d.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
    const FakeDevice& facts = fake().devices[static_cast<std::size_t>(device)];
    *value = attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING                            ? 1
             : attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED         ? facts.virtual_memory
             : attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ? facts.descriptors
             : attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED                ? facts.fabric
             : attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED                         ? facts.multicast
                                                                                            : 0;
    return CUDA_SUCCESS;
  };
  d.device_can_access_peer = [](int* can, CUdevice from, CUdevice to) {
    *can = fake().devices[static_cast<std::size_t>(from)].peer_access &&
           fake().devices[static_cast<std::size_t>(to)].peer_access;
    return CUDA_SUCCESS;
  };
  d.device_primary_ctx_retain = [](CUcontext* context, CUdevice device) {
    const std::scoped_lock lock(fake().mutex);
    if (const CUresult result = fake().enter("cuDevicePrimaryCtxRetain"); result != CUDA_SUCCESS) {
      return result;
    }
    ++fake().retained[device];
    return *context = context_of(device), CUDA_SUCCESS;
  };
  d.device_primary_ctx_release = [](CUdevice device) {
    const std::scoped_lock lock(fake().mutex);
    fake().leave("cuDevicePrimaryCtxRelease");
    --fake().retained[device];
    return CUDA_SUCCESS;
  };
  d.ctx_push_current = [](CUcontext context) { return fake_contexts().push_back(context), CUDA_SUCCESS; };
  d.ctx_pop_current = [](CUcontext* context) {
    if (fake_contexts().empty()) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    *context = fake_contexts().back();
    return fake_contexts().pop_back(), CUDA_SUCCESS;
  };
  d.ctx_enable_peer_access = [](CUcontext peer, unsigned) {
    const std::scoped_lock lock(fake().mutex);
    if (const CUresult result = fake().enter("cuCtxEnablePeerAccess"); result != CUDA_SUCCESS) {
      return result;
    }
    return fake_contexts().empty() || fake_contexts().back() == peer ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  };
  d.thread_exchange_stream_capture_mode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  d.stream_create = [](CUstream* stream, unsigned) {
    const std::scoped_lock lock(fake().mutex);
    if (const CUresult result = fake().enter("cuStreamCreate"); result != CUDA_SUCCESS) {
      return result;
    }
    ++fake().streams;
    return *stream = reinterpret_cast<CUstream>(std::uintptr_t{0x500}), CUDA_SUCCESS;
  };
  d.stream_destroy = [](CUstream) {
    const std::scoped_lock lock(fake().mutex);
    --fake().streams;
    return CUDA_SUCCESS;
  };
  d.stream_synchronize = [](CUstream) {
    const std::scoped_lock lock(fake().mutex);
    return fake().enter("cuStreamSynchronize");
  };
}

FakeCuda::FakeCuda(std::vector<FakeDevice> devices) {
  if (living != nullptr) {
    std::fputs("two FakeCuda at once\n", stderr);
    std::abort();
  }
  living = new FakeCudaState;
  living->devices = std::move(devices);
  fill_devices(driver_);
  fill_memory(driver_);
  fill_virtual_memory(driver_);
  fill_multicast(driver_);
}

FakeCuda::~FakeCuda() {
  delete living;
  living = nullptr;
}

void FakeCuda::fail_call(int n, CUresult result) {
  const std::scoped_lock lock(fake().mutex);
  fake().countdown = n;
  fake().failure = result;
  fake().num_calls = 0;
}

int FakeCuda::num_calls() const {
  const std::scoped_lock lock(fake().mutex);
  return fake().num_calls;
}

std::vector<std::string> FakeCuda::calls() const {
  const std::scoped_lock lock(fake().mutex);
  return fake().calls;
}

std::string FakeCuda::held() const {
  const std::scoped_lock lock(fake().mutex);
  std::string lines;
  add_line(lines, static_cast<long>(fake().handles.size()), "memory handle(s)");
  add_line(lines, static_cast<long>(fake().reservations.size()), "reserved address range(s)");
  add_line(lines, static_cast<long>(fake().linear.size()), "cuMemAlloc allocation(s)");
  add_line(lines, static_cast<long>(fake().ipc.size()), "open IPC handle(s)");
  add_line(lines, fake().streams, "stream(s)");
  for (const auto& [device, count] : fake().retained) {
    add_line(lines, count, "retain(s) of a primary context");
  }
  for (const auto& [inode, object] : fake().objects) {
    if (const auto alive = object.lock(); alive != nullptr && !alive->bound.empty()) {
      lines += "bound multicast object\n";
    }
  }
  return lines;
}

std::string FakeCuda::broken_rules() const {
  const std::scoped_lock lock(fake().mutex);
  return fake().broken_rules;
}

}  // namespace moelink::test

#endif
