// Virtual memory that is shared by handles: what the kinds vmm and fabric have in common, which is all but the form of
// the handle.
#pragma once

#if MOELINK_HAVE_CUDA

#include <cstddef>
#include <memory>

#include "transports/cuda/virtual_memory.hpp"
#include "transports/memory.hpp"

namespace moelink {

struct ImportedHandle {
  CudaHandle handle;
  std::size_t size_bytes = 0;
};

/// How handles of one form travel. One constant per form.
struct HandleForm {
  MemoryKind kind;
  CUmemAllocationHandleType type;
  bool has_descriptors;
  MemoryTicket (*export_handle)(const CudaContext& context, CUmemGenericAllocationHandle handle,
                                std::size_t size_bytes);
  ImportedHandle (*import_handle)(const std::shared_ptr<CudaContext>& context, MemoryTicket ticket);
};

/// Virtual memory of this rank, with the handle that a multicast object binds.
class VirtualMemory : public LocalMemory {
 public:
  [[nodiscard]] virtual CUmemGenericAllocationHandle handle() const noexcept = 0;
};

class VirtualTransport final : public MemoryTransport {
 public:
  /// `form` lives forever.
  VirtualTransport(std::shared_ptr<CudaContext> context, const HandleForm& form);

  [[nodiscard]] MemoryKind kind() const noexcept override { return form_.kind; }
  [[nodiscard]] Lifetime lifetime() const noexcept override { return Lifetime::counted; }
  [[nodiscard]] bool has_descriptors() const noexcept override { return form_.has_descriptors; }
  /// A VirtualMemory.
  [[nodiscard]] std::shared_ptr<LocalMemory> allocate(std::size_t size_bytes) override;
  [[nodiscard]] std::shared_ptr<MappedMemory> map(MemoryTicket ticket) override;

  [[nodiscard]] const std::shared_ptr<CudaContext>& context() const noexcept { return context_; }
  [[nodiscard]] const HandleForm& form() const noexcept { return form_; }

 private:
  std::shared_ptr<CudaContext> context_;
  const HandleForm& form_;
};

}  // namespace moelink

#endif
