#include "transports/put_check.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace moelink {
namespace {

constexpr std::uint32_t kMagic = 0x6d6c7074;  // "mlpt"

/// Whether [offset, offset + size) lies in a region, without overflow.
bool inside(std::size_t offset, std::size_t size, std::size_t region) {
  return offset <= region && size <= region - offset;
}

void check_put(const PutTransport& owner, const Put& put, std::size_t max_bytes) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); };
  if (put.target == nullptr || put.target->owner() != &owner) {
    refuse("a put names no region of a peer that this transport imported");
  }
  const std::string peer = text("rank ", put.target->peer());
  if (put.source == nullptr ? put.size_bytes != 0 : put.source->owner() != &owner) {
    refuse(text("a put of ", put.size_bytes, " bytes to ", peer, " names no source region of this transport"));
  }
  if (put.source != nullptr && !inside(put.source_offset_bytes, put.size_bytes, put.source->size_bytes())) {
    refuse(text("a put to ", peer, " reads ", put.size_bytes, " bytes at offset ", put.source_offset_bytes,
                " of a region of ", put.source->size_bytes()));
  }
  if (!inside(put.target_offset_bytes, put.size_bytes, put.target->size_bytes())) {
    refuse(text("a put to ", peer, " writes ", put.size_bytes, " bytes at offset ", put.target_offset_bytes,
                " of a region of ", put.target->size_bytes()));
  }
  if (put.size_bytes > max_bytes) {
    refuse(text("a put to ", peer, " has ", put.size_bytes, " bytes; the transport moves at most ", max_bytes,
                " at once: split it"));
  }
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::byte byte : bytes) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

void check_puts(const PutTransport& owner, std::span<const Put> puts, std::size_t max_bytes) {
  for (const Put& put : puts) {
    check_put(owner, put, max_bytes);
  }
}

void check_memory(const PutMemory& memory) {
  if (memory.data == nullptr || memory.size_bytes == 0) {
    throw Error(ErrorCode::invalid_argument,
                text("a region of ", memory.size_bytes, " bytes at ", static_cast<const void*>(memory.data),
                     " cannot be registered; expected memory of 1 byte or more"));
  }
}

void check_peer(const PutOptions& options, int peer) {
  if (std::ranges::find(options.remotes, peer) == options.remotes.end()) {
    throw Error(ErrorCode::invalid_argument, text("rank ", peer, " is none of the remotes of rank ", options.rank));
  }
}

Bytes seal(PutKind kind, std::span<const std::byte> contents) {
  ByteWriter writer;
  writer.u32(kMagic);
  writer.u32(static_cast<std::uint32_t>(kind));
  writer.block(contents);
  writer.u64(checksum(writer.bytes()));
  return writer.take();
}

std::span<const std::byte> unseal(PutKind kind, std::string_view what, int peer, std::span<const std::byte> sealed) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::peer,
                text("the ", what, " of rank ", peer, " ", reason, "; do all ranks run the same build?"));
  };
  constexpr std::size_t kFrameBytes = 4 + 4 + 4 + 8;
  if (sealed.size() < kFrameBytes) {
    refuse(text("has ", sealed.size(), " bytes, fewer than any"));
  }
  ByteReader reader(sealed);
  if (reader.u32() != kMagic) {
    refuse("is not one of moelink");
  }
  if (const std::uint32_t its_kind = reader.u32(); its_kind != static_cast<std::uint32_t>(kind)) {
    refuse(text("is of transport ", its_kind < kNumPutKinds ? name_of(static_cast<PutKind>(its_kind)) : "unknown",
                ", not ", name_of(kind)));
  }
  if (sealed.size() - kFrameBytes != reader.u32()) {
    refuse("has the wrong length");
  }
  const auto contents = reader.raw(sealed.size() - kFrameBytes);
  if (reader.u64() != checksum(sealed.first(sealed.size() - 8))) {
    refuse("is damaged");
  }
  return contents;
}

}  // namespace moelink
