#include "transports/shm/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/system_error.hpp"
#include "transports/host/pages.hpp"
#include "transports/ticket_codec.hpp"

namespace moelink {
namespace {

// A file that could shrink under a mapping would turn a peer's mistake into our SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct ShmTicket {
  std::size_t size_bytes;
};

class ShmMapping final : public MappedMemory {
 public:
  explicit ShmMapping(HostPages pages) : pages_(std::move(pages)) {}

  [[nodiscard]] std::byte* data() const noexcept override { return pages_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return pages_.size_bytes(); }
  void store(std::size_t offset, std::span<const std::byte> source) override { pages_.store(offset, source); }
  void load(std::size_t offset, std::span<std::byte> out) const override { pages_.load(offset, out); }

 private:
  HostPages pages_;
};

class ShmMemory final : public LocalMemory {
 public:
  ShmMemory(UniqueFd file, HostPages pages) : file_(std::move(file)), pages_(std::move(pages)) {}

  [[nodiscard]] std::byte* data() const noexcept override { return pages_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return pages_.size_bytes(); }
  void store(std::size_t offset, std::span<const std::byte> source) override { pages_.store(offset, source); }
  void load(std::size_t offset, std::span<std::byte> out) const override { pages_.load(offset, out); }

  [[nodiscard]] MemoryTicket ticket() const override {
    MemoryTicket ticket = encode_ticket(MemoryKind::shm, ShmTicket{pages_.size_bytes()});
    ticket.descriptor = UniqueFd(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
    if (!ticket.descriptor) {
      throw system_error("duplicating a shared-memory descriptor failed (check `ulimit -n`)");
    }
    return ticket;
  }

 private:
  UniqueFd file_;
  HostPages pages_;
};

class ShmTransport final : public MemoryTransport {
 public:
  [[nodiscard]] MemoryKind kind() const noexcept override { return MemoryKind::shm; }
  [[nodiscard]] Lifetime lifetime() const noexcept override { return Lifetime::counted; }
  [[nodiscard]] bool has_descriptors() const noexcept override { return true; }

  [[nodiscard]] std::shared_ptr<LocalMemory> allocate(std::size_t size_bytes) override {
    const std::size_t rounded = HostPages::round_up(size_bytes);
    UniqueFd file(::memfd_create("moelink", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) {
      throw system_error("memfd_create failed");
    }
    // A new file reads as zeros.
    if (::ftruncate(file.get(), static_cast<off_t>(rounded)) != 0) {
      throw system_error("growing a memory file to " + std::to_string(rounded) + " bytes failed");
    }
    if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
      throw system_error("sealing a memory file failed");
    }
    HostPages pages = HostPages::of_file(file.get(), rounded);
    return std::make_shared<ShmMemory>(std::move(file), std::move(pages));
  }

  [[nodiscard]] std::shared_ptr<MappedMemory> map(MemoryTicket ticket) override {
    const auto fields = decode_ticket<ShmTicket>(MemoryKind::shm, ticket);
    struct stat status {};
    if (!ticket.descriptor || ::fstat(ticket.descriptor.get(), &status) != 0) {
      throw Error(ErrorCode::peer, "a peer's shared-memory ticket came without its descriptor");
    }
    const int seals = ::fcntl(ticket.descriptor.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      throw Error(ErrorCode::peer, "a peer sent a descriptor that is not a sealed memory file");
    }
    if (fields.size_bytes == 0 || static_cast<std::size_t>(status.st_size) != fields.size_bytes) {
      throw Error(ErrorCode::peer, "a peer's memory file has " + std::to_string(status.st_size) +
                                       " bytes; its ticket says " + std::to_string(fields.size_bytes));
    }
    return std::make_shared<ShmMapping>(HostPages::of_file(ticket.descriptor.get(), fields.size_bytes));
  }
};

}  // namespace

std::unique_ptr<MemoryTransport> make_shm_memory() { return std::make_unique<ShmTransport>(); }

}  // namespace moelink
