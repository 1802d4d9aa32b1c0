#include "transports/verbs/device_memory.hpp"

#if MOELINK_HAVE_VERBS

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/cuda_driver.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace moelink {
namespace {

#if MOELINK_HAVE_CUDA
/// Registers by dma-buf; null and a reason if that cannot be.
ibv_mr* register_dmabuf(const VerbsLibrary& verbs, ibv_pd* domain, const PutMemory& memory, int access,
                        std::string& reason) {
  const CudaDriver& driver = CudaDriver::get();
  if (verbs.reg_dmabuf_mr == nullptr || driver.mem_get_handle_for_address_range == nullptr) {
    reason = "libibverbs or the driver is too old";
    return nullptr;
  }
  const CudaContextScope scope(memory.device.ordinal());
  // Handles are of whole pages: the region lies at an offset in them.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data);
  const std::uint64_t start = address / page * page;
  const std::uint64_t end = (address + memory.size_bytes + page - 1) / page * page;
  int fd = -1;
  const CUresult result =
      driver.mem_get_handle_for_address_range(&fd, start, end - start, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result != CUDA_SUCCESS) {
    reason = text("the driver gave no descriptor (CUDA error ", static_cast<int>(result), ")");
    return nullptr;
  }
  const UniqueFd owned(fd);
  ibv_mr* region = verbs.reg_dmabuf_mr(domain, address - start, memory.size_bytes, address, fd, access);
  if (region == nullptr) reason = std::strerror(errno);
  return region;
}
#endif

}  // namespace

MemoryHandle register_device_memory(const VerbsLibrary& verbs, ibv_pd* domain, const PutMemory& memory, int access,
                                    bool relaxed_ordering) {
#if MOELINK_HAVE_CUDA
  const int wanted = access | (relaxed_ordering ? static_cast<int>(IBV_ACCESS_RELAXED_ORDERING) : 0);
  std::string dmabuf_reason;
  if (ibv_mr* region = register_dmabuf(verbs, domain, memory, wanted, dmabuf_reason)) return {region, verbs.dereg_mr};
  // With nvidia-peermem loaded, a GPU address is registered like any other.
  if (ibv_mr* region = verbs.reg_mr(domain, memory.data, memory.size_bytes, access)) return {region, verbs.dereg_mr};
  throw Error(ErrorCode::unsupported,
              text("the NIC cannot reach the memory of ", memory.device.name(), ": dma-buf: ", dmabuf_reason,
                   "; peer memory: ", std::strerror(errno),
                   ". Load nvidia-peermem, use open kernel modules, or stage rows in host memory"));
#else
  (void)verbs, (void)domain, (void)access, (void)relaxed_ordering;
  throw Error(ErrorCode::unsupported, text("this build has no CUDA; ", memory.device.name(), " is out of reach"));
#endif
}

}  // namespace moelink

#endif
