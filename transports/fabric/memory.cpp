#include "transports/fabric/memory.hpp"

#if MOELINK_HAVE_CUDA

#include <utility>

#include "transports/ticket_codec.hpp"

namespace moelink {
namespace {

constexpr CUmemAllocationHandleType kType = CU_MEM_HANDLE_TYPE_FABRIC;

struct FabricTicket {
  std::size_t size_bytes;
  CUmemFabricHandle handle;
};

MemoryTicket export_handle(const CudaContext& context, CUmemGenericAllocationHandle handle, std::size_t size_bytes) {
  FabricTicket fields{size_bytes, {}};
  check_cuda(context.driver().mem_export_to_shareable_handle(&fields.handle, handle, kType, 0),
             "cuMemExportToShareableHandle(fabric)");
  return encode_ticket(MemoryKind::fabric, fields);
}

ImportedHandle import_handle(const std::shared_ptr<CudaContext>& context, MemoryTicket ticket) {
  auto fields = decode_ticket<FabricTicket>(MemoryKind::fabric, ticket);
  CUmemGenericAllocationHandle handle = 0;
  const CudaContext::Scope scope(*context);
  check_cuda(context->driver().mem_import_from_shareable_handle(&handle, &fields.handle, kType),
             "cuMemImportFromShareableHandle(fabric; are the IMEX channels of both machines set up?)");
  return {CudaHandle(context, handle), fields.size_bytes};
}

constexpr HandleForm kForm{MemoryKind::fabric, kType, /*has_descriptors=*/false, export_handle, import_handle};

}  // namespace

std::unique_ptr<VirtualTransport> make_fabric_memory(const CudaDriver& driver, int ordinal) {
  return std::make_unique<VirtualTransport>(std::make_shared<CudaContext>(driver, ordinal), kForm);
}

}  // namespace moelink

#endif
