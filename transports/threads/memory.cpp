#include "transports/threads/memory.hpp"

#include <string>
#include <utility>

#include "base/cuda_driver.hpp"
#include "moelink/error.hpp"
#include "transports/cuda/linear_memory.hpp"
#include "transports/host/pages.hpp"
#include "transports/process_token.hpp"
#include "transports/threads/registry.hpp"
#include "transports/ticket_codec.hpp"

namespace moelink {
namespace {

struct ThreadsTicket {
  std::uint64_t process;
  std::uint64_t id;
};

/// `Pages` owns the memory: HostPages or CudaLinearMemory.
template <class Pages>
class ThreadsMemory final : public LocalMemory, public std::enable_shared_from_this<ThreadsMemory<Pages>> {
 public:
  template <class... Arguments>
  explicit ThreadsMemory(int device_ordinal, Arguments&&... arguments)
      : device_ordinal_(device_ordinal), pages_(std::forward<Arguments>(arguments)...) {}

  [[nodiscard]] std::byte* data() const noexcept override { return pages_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return pages_.size_bytes(); }
  void store(std::size_t offset, std::span<const std::byte> source) override { pages_.store(offset, source); }
  void load(std::size_t offset, std::span<std::byte> out) const override { pages_.load(offset, out); }

  [[nodiscard]] MemoryTicket ticket() const override {
    auto self = std::const_pointer_cast<ThreadsMemory>(this->shared_from_this());
    return encode_ticket(MemoryKind::threads, ThreadsTicket{process_token(), publish(self, device_ordinal_)});
  }

 private:
  int device_ordinal_;
  Pages pages_;
};

class ThreadsTransport : public MemoryTransport {
 public:
  [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::threads; }
  [[nodiscard]] Lifetime lifetime() const noexcept override { return Lifetime::counted; }
  [[nodiscard]] bool has_descriptors() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<MappedMemory> map(MemoryTicket ticket) override {
    const auto fields = decode_ticket<ThreadsTicket>(MemoryKind::threads, ticket);
    if (fields.process != process_token()) {
      throw Error(ErrorCode::peer, "a memory ticket of another process was given to the in-process transport");
    }
    PublishedMemory published = find_published(fields.id);
    if (published.memory == nullptr) {
      throw Error(ErrorCode::peer, "a peer's memory was gone before it could be mapped");
    }
    reach_device(published.device_ordinal);
    return std::move(published.memory);
  }

 private:
  /// Makes memory on that device usable from this rank's.
  virtual void reach_device(int owner_ordinal) = 0;
};

class HostThreadsTransport final : public ThreadsTransport {
 public:
  [[nodiscard]] std::shared_ptr<LocalMemory> allocate(std::size_t size_bytes) override {
    return std::make_shared<ThreadsMemory<HostPages>>(-1, HostPages::anonymous(size_bytes));
  }

 private:
  void reach_device(int owner_ordinal) override {
    if (owner_ordinal >= 0) {
      throw Error(ErrorCode::unsupported,
                  "a rank on the host cannot map the memory of a rank on cuda:" + std::to_string(owner_ordinal) +
                      "; run all ranks on the same kind of device");
    }
  }
};

#if MOELINK_HAVE_CUDA

class CudaThreadsTransport final : public ThreadsTransport {
 public:
  explicit CudaThreadsTransport(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

  [[nodiscard]] std::shared_ptr<LocalMemory> allocate(std::size_t size_bytes) override {
    constexpr std::size_t kGranularityBytes = 4096;
    return std::make_shared<ThreadsMemory<CudaLinearMemory>>(context_->ordinal(), context_, size_bytes,
                                                             kGranularityBytes);
  }

 private:
  void reach_device(int owner_ordinal) override {
    const std::string here = "cuda:" + std::to_string(context_->ordinal());
    if (owner_ordinal < 0) {
      throw Error(ErrorCode::unsupported, "a rank on " + here +
                                              " cannot map the memory of a rank on the host; run all ranks on the same "
                                              "kind of device");
    }
    if (owner_ordinal == context_->ordinal()) {
      return;  // one primary context per device and process: the pointer is good as it is
    }
    const CudaContext owner(context_->driver(), owner_ordinal);
    const CudaContext::Scope scope(*context_);
    const CUresult result = context_->driver().ctx_enable_peer_access(owner.handle(), 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
      check_cuda(result, "cuCtxEnablePeerAccess(from " + here + " to cuda:" + std::to_string(owner_ordinal) + ")");
    }
  }

  std::shared_ptr<CudaContext> context_;
};

#endif

}  // namespace

std::unique_ptr<MemoryTransport> make_threads_memory(Device device) {
  if (device.is_host()) {
    return std::make_unique<HostThreadsTransport>();
  }
#if MOELINK_HAVE_CUDA
  return make_threads_memory(CudaDriver::get(), device.ordinal());
#else
  throw Error(ErrorCode::unsupported, "this build has no CUDA; configure it where the toolkit is found");
#endif
}

#if MOELINK_HAVE_CUDA
std::unique_ptr<MemoryTransport> make_threads_memory(const CudaDriver& driver, int ordinal) {
  return std::make_unique<CudaThreadsTransport>(std::make_shared<CudaContext>(driver, ordinal));
}
#endif

}  // namespace moelink
