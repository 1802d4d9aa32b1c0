#include <dlfcn.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/cuda_driver.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "moelink/error.hpp"
#include "moelink/topology.hpp"

namespace moelink {
namespace {

TransportStatus probe_shared_memory() {
  const UniqueFd fd(::memfd_create("moelink-probe", MFD_CLOEXEC));
  if (!fd) {
    return {"shm", false, text("memfd_create() failed: ", std::strerror(errno))};
  }
  return {"shm", true, "memfd; host memory of ranks on one node"};
}

TransportStatus probe_cuda() {
#if MOELINK_HAVE_CUDA
  try {
    (void)CudaDriver::get();
    return {"cuda", true, text(Device::cuda_count(), " devices; memory of GPUs on one node")};
  } catch (const Error& error) {
    return {"cuda", false, error.what()};
  }
#else
  return {"cuda", false, "this build has no CUDA (the toolkit was not found at configure time)"};
#endif
}

/// The library stays loaded: some of those below start threads that would run into the hole.
TransportStatus probe_library(const char* name, const std::vector<const char*>& files, const char* purpose) {
  for (const char* file : files) {
    if (::dlopen(file, RTLD_LAZY | RTLD_LOCAL) != nullptr) {
      return {name, true, text(file, "; ", purpose)};
    }
  }
  return {name, false, text(files.front(), " is not installed; ", purpose)};
}

TransportStatus probe_verbs() {
  TransportStatus status = probe_library("verbs", {"libibverbs.so.1"}, "RDMA between nodes");
  if (!status.usable) {
    return status;
  }
  void* library = ::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  auto* list = reinterpret_cast<void** (*)(int*)>(::dlsym(library, "ibv_get_device_list"));
  auto* release = reinterpret_cast<void (*)(void**)>(::dlsym(library, "ibv_free_device_list"));
  int count = 0;
  if (list != nullptr && release != nullptr) {
    if (void** devices = list(&count); devices != nullptr) {
      release(devices);
    }
  }
  if (count == 0) {
    return {"verbs", false, "libibverbs.so.1 finds no RDMA device; RDMA between nodes"};
  }
  return {"verbs", true, text(count, " devices; RDMA between nodes")};
}

}  // namespace

std::vector<TransportStatus> probe_transports() {
  return {
      {"threads", true, "memory of ranks in one process"},
      probe_shared_memory(),
      probe_cuda(),
      probe_verbs(),
      probe_library("ucx", {"libucp.so.0", "libucp.so"}, "puts between nodes"),
      probe_library("nccl", {"libnccl.so.2", "libnccl.so"}, "all-reduce between nodes"),
  };
}

}  // namespace moelink
