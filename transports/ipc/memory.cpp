#include "transports/ipc/memory.hpp"

#if MOELINK_HAVE_CUDA

#include <utility>

#include "transports/cuda/linear_memory.hpp"
#include "transports/ticket_codec.hpp"

namespace moelink {
namespace {

/// The driver carves small allocations out of blocks of this size, and a handle shows its whole block.
constexpr std::size_t kBlockBytes = std::size_t{2} << 20;

struct IpcTicket {
  std::size_t size_bytes;
  CUipcMemHandle handle;
};

class IpcMemory final : public LocalMemory {
 public:
  explicit IpcMemory(const std::shared_ptr<CudaContext>& context, std::size_t size_bytes)
      : memory_(context, size_bytes, kBlockBytes) {}

  [[nodiscard]] std::byte* data() const noexcept override { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return memory_.size_bytes(); }
  void store(std::size_t offset, std::span<const std::byte> source) override { memory_.store(offset, source); }
  void load(std::size_t offset, std::span<std::byte> out) const override { memory_.load(offset, out); }

  [[nodiscard]] MemoryTicket ticket() const override {
    IpcTicket fields{memory_.size_bytes(), {}};
    const CudaContext::Scope scope(memory_.context());
    check_cuda(
        memory_.context().driver().ipc_get_mem_handle(&fields.handle, reinterpret_cast<CUdeviceptr>(memory_.data())),
        "cuIpcGetMemHandle");
    return encode_ticket(MemoryKind::ipc, fields);
  }

 private:
  CudaLinearMemory memory_;
};

class IpcMapping final : public MappedMemory {
 public:
  IpcMapping(std::shared_ptr<CudaContext> context, const IpcTicket& ticket)
      : context_(std::move(context)), size_bytes_(ticket.size_bytes) {
    const CudaContext::Scope scope(*context_);
    // Lazy: peer access is enabled for this memory, if its device is another one.
    check_cuda(context_->driver().ipc_open_mem_handle(&address_, ticket.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
               "cuIpcOpenMemHandle");
  }
  ~IpcMapping() override {
    try {
      const CudaContext::Scope scope(*context_);
      context_->driver().ipc_close_mem_handle(address_);
    } catch (...) {  // the context is lost, and the mapping with it
    }
  }
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;

  [[nodiscard]] std::byte* data() const noexcept override { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return size_bytes_; }
  void store(std::size_t offset, std::span<const std::byte> source) override {
    context_->copy(data() + offset, source.data(), source.size());
  }
  void load(std::size_t offset, std::span<std::byte> out) const override {
    context_->copy(out.data(), data() + offset, out.size());
  }

 private:
  std::shared_ptr<CudaContext> context_;
  CUdeviceptr address_ = 0;
  std::size_t size_bytes_;
};

class IpcTransport final : public MemoryTransport {
 public:
  explicit IpcTransport(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

  [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::ipc; }
  [[nodiscard]] Lifetime lifetime() const noexcept override { return Lifetime::owner; }
  [[nodiscard]] bool has_descriptors() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<LocalMemory> allocate(std::size_t size_bytes) override {
    return std::make_shared<IpcMemory>(context_, size_bytes);
  }
  [[nodiscard]] std::shared_ptr<MappedMemory> map(MemoryTicket ticket) override {
    return std::make_shared<IpcMapping>(context_, decode_ticket<IpcTicket>(MemoryKind::ipc, ticket));
  }

 private:
  std::shared_ptr<CudaContext> context_;
};

}  // namespace

std::unique_ptr<MemoryTransport> make_ipc_memory(const CudaDriver& driver, int ordinal) {
  return std::make_unique<IpcTransport>(std::make_shared<CudaContext>(driver, ordinal));
}

}  // namespace moelink

#endif
