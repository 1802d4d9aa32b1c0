// Memory one maps: the interface that every transport of this kind implements, in <transport>/memory.{hpp,cpp}. To add
// one: implement it, name it in MemoryKind, and teach reach.cpp when it is available.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/unique_fd.hpp"

namespace moelink {

/// Kinds of memory that other ranks can map. The order is the order of preference.
enum class MemoryKind : unsigned char {
  threads,  ///< ranks of one process: plain pointers, peer access between devices
  vmm,      ///< CUDA virtual memory, file descriptors passed over Unix sockets; one machine
  fabric,   ///< CUDA virtual memory, fabric handles; one NVLink clique of many machines
  ipc,      ///< CUDA IPC handles; one machine, where descriptors are not supported
  shm,      ///< host memory (memfd), file descriptors passed over Unix sockets
};
inline constexpr int kNumMemoryKinds = 5;

[[nodiscard]] constexpr std::string_view name_of(MemoryKind kind) noexcept {
  constexpr std::array<std::string_view, kNumMemoryKinds> kNames = {"threads", "vmm", "fabric", "ipc", "shm"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// What a rank publishes so that others can map its memory: bytes, and a descriptor where the kind has one. The
/// descriptor does not travel in the bytes; see DescriptorExchange.
struct MemoryTicket {
  static constexpr std::size_t kBytes = 96;
  std::array<std::byte, kBytes> bytes{};
  UniqueFd descriptor;
};

/// Addresses of this process that show some rank's memory, until the object goes. Destructors do not throw.
class MappedMemory {
 public:
  virtual ~MappedMemory() = default;

  [[nodiscard]] virtual std::byte* data() const noexcept = 0;
  [[nodiscard]] virtual std::size_t size_bytes() const noexcept = 0;

  /// Copies from or to the caller's host memory; complete on return. For set-up and farewells, not for payloads.
  virtual void store(std::size_t offset_bytes, std::span<const std::byte> source) = 0;
  virtual void load(std::size_t offset_bytes, std::span<std::byte> destination) const = 0;
};

/// Memory that this rank owns and maps itself.
class LocalMemory : public MappedMemory {
 public:
  /// For one peer or for all of them: a ticket may be given out any number of times while the memory lives.
  [[nodiscard]] virtual MemoryTicket ticket() const = 0;
};

/// When memory ends.
enum class Lifetime : unsigned char {
  counted,  ///< with the last mapping, whoever made it: the owner may leave while others still write
  owner,    ///< with its owner, who must therefore wait for the others
};

/// One rank's access to one kind of memory, on one device. Thread-safe.
class MemoryTransport {
 public:
  virtual ~MemoryTransport() = default;

  [[nodiscard]] virtual MemoryKind kind() const noexcept = 0;
  [[nodiscard]] virtual Lifetime lifetime() const noexcept = 0;
  [[nodiscard]] virtual bool has_descriptors() const noexcept = 0;

  /// At least `size_bytes` (not 0), rounded up to what the kind can map, aligned to 256 bytes or more, all zero. Throws
  /// ErrorCode::capacity or cuda.
  [[nodiscard]] virtual std::shared_ptr<LocalMemory> allocate(std::size_t size_bytes) = 0;

  /// Maps a peer's memory, on this rank's device. Throws ErrorCode::peer if the ticket is not one of this kind.
  [[nodiscard]] virtual std::shared_ptr<MappedMemory> map(MemoryTicket ticket) = 0;
};

}  // namespace moelink
