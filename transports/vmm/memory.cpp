#include "transports/vmm/memory.hpp"

#if MOELINK_HAVE_CUDA

#include <fcntl.h>

#include <cstdint>
#include <utility>

#include "moelink/error.hpp"
#include "transports/ticket_codec.hpp"

namespace moelink {
namespace {

constexpr CUmemAllocationHandleType kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct VmmTicket {
  std::size_t size_bytes;
};

MemoryTicket export_handle(const CudaContext& context, CUmemGenericAllocationHandle handle, std::size_t size_bytes) {
  MemoryTicket ticket = encode_ticket(MemoryKind::vmm, VmmTicket{size_bytes});
  int fd = -1;
  check_cuda(context.driver().mem_export_to_shareable_handle(&fd, handle, kType, 0),
             "cuMemExportToShareableHandle(file descriptor)");
  ticket.descriptor = UniqueFd(fd);
  // The driver does not promise it, and a child of the caller must not keep our memory alive.
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return ticket;
}

ImportedHandle import_handle(const std::shared_ptr<CudaContext>& context, MemoryTicket ticket) {
  const auto fields = decode_ticket<VmmTicket>(MemoryKind::vmm, ticket);
  if (!ticket.descriptor) {
    throw Error(ErrorCode::peer, "a peer's device-memory ticket came without its descriptor");
  }
  CUmemGenericAllocationHandle handle = 0;
  const CudaContext::Scope scope(*context);
  check_cuda(context->driver().mem_import_from_shareable_handle(
                 &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(ticket.descriptor.get())), kType),
             "cuMemImportFromShareableHandle(file descriptor)");
  return {CudaHandle(context, handle), fields.size_bytes};
}

constexpr HandleForm kForm{MemoryKind::vmm, kType, /*has_descriptors=*/true, export_handle, import_handle};

}  // namespace

std::unique_ptr<VirtualTransport> make_vmm_memory(const CudaDriver& driver, int ordinal) {
  return std::make_unique<VirtualTransport>(std::make_shared<CudaContext>(driver, ordinal), kForm);
}

}  // namespace moelink

#endif
