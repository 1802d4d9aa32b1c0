#include "transports/cuda/virtual_transport.hpp"

#if MOELINK_HAVE_CUDA

#include <string>
#include <utility>

#include "moelink/error.hpp"
#include "transports/cuda/linear_memory.hpp"

namespace moelink {
namespace {

class OwnedVirtualMemory final : public VirtualMemory {
 public:
  OwnedVirtualMemory(const std::shared_ptr<CudaContext>& context, const HandleForm& form, CudaHandle handle,
                     std::size_t size_bytes, std::size_t granularity)
      : context_(context),
        form_(form),
        handle_(std::move(handle)),
        mapping_(context, handle_, size_bytes, granularity) {}

  [[nodiscard]] std::byte* data() const noexcept override { return mapping_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return mapping_.size_bytes(); }
  void store(std::size_t offset, std::span<const std::byte> source) override {
    context_->copy(data() + offset, source.data(), source.size());
  }
  void load(std::size_t offset, std::span<std::byte> out) const override {
    context_->copy(out.data(), data() + offset, out.size());
  }
  [[nodiscard]] MemoryTicket ticket() const override {
    return form_.export_handle(*context_, handle_.get(), mapping_.size_bytes());
  }
  [[nodiscard]] CUmemGenericAllocationHandle handle() const noexcept override { return handle_.get(); }

 private:
  std::shared_ptr<CudaContext> context_;
  const HandleForm& form_;
  CudaHandle handle_;
  CudaMapping mapping_;
};

class PeerVirtualMemory final : public MappedMemory {
 public:
  PeerVirtualMemory(const std::shared_ptr<CudaContext>& context, const ImportedHandle& imported,
                    std::size_t granularity)
      : context_(context), mapping_(context, imported.handle, imported.size_bytes, granularity) {}

  [[nodiscard]] std::byte* data() const noexcept override { return mapping_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return mapping_.size_bytes(); }
  void store(std::size_t offset, std::span<const std::byte> source) override {
    context_->copy(data() + offset, source.data(), source.size());
  }
  void load(std::size_t offset, std::span<std::byte> out) const override {
    context_->copy(out.data(), data() + offset, out.size());
  }

 private:
  std::shared_ptr<CudaContext> context_;
  CudaMapping mapping_;
};

}  // namespace

VirtualTransport::VirtualTransport(std::shared_ptr<CudaContext> context, const HandleForm& form)
    : context_(std::move(context)), form_(form) {}

std::shared_ptr<LocalMemory> VirtualTransport::allocate(std::size_t size_bytes) {
  const CUmemAllocationProp properties = shareable_memory(*context_, form_.type);
  const std::size_t granularity = granularity_of(*context_, properties);
  const std::size_t rounded = round_up_bytes(size_bytes, granularity);
  auto memory = std::make_shared<OwnedVirtualMemory>(context_, form_, create_memory(context_, rounded, properties),
                                                     rounded, granularity);
  context_->zero(memory->data(), memory->size_bytes());
  return memory;
}

std::shared_ptr<MappedMemory> VirtualTransport::map(MemoryTicket ticket) {
  const std::size_t granularity = granularity_of(*context_, shareable_memory(*context_, form_.type));
  const ImportedHandle imported = form_.import_handle(context_, std::move(ticket));
  if (imported.size_bytes == 0 || imported.size_bytes % granularity != 0) {
    throw Error(ErrorCode::peer, "a peer's device memory has " + std::to_string(imported.size_bytes) +
                                     " bytes; expected a multiple of " + std::to_string(granularity));
  }
  return std::make_shared<PeerVirtualMemory>(context_, imported, granularity);
}

}  // namespace moelink

#endif
