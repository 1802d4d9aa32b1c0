// Plain structs in and out of a ticket's bytes.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "moelink/error.hpp"
#include "transports/memory.hpp"

namespace moelink {

/// The first byte names the kind, so that a ticket of another kind (ranks that disagree) is refused, not misread.
template <class Fields>
[[nodiscard]] MemoryTicket encode_ticket(MemoryKind kind, const Fields& fields) {
  static_assert(std::is_trivially_copyable_v<Fields> && sizeof(Fields) < MemoryTicket::kBytes);
  MemoryTicket ticket;
  ticket.bytes[0] = static_cast<std::byte>(kind) | std::byte{0x80};
  std::memcpy(ticket.bytes.data() + 1, &fields, sizeof(Fields));
  return ticket;
}

template <class Fields>
[[nodiscard]] Fields decode_ticket(MemoryKind kind, const MemoryTicket& ticket) {
  static_assert(std::is_trivially_copyable_v<Fields> && sizeof(Fields) < MemoryTicket::kBytes);
  if (ticket.bytes[0] != (static_cast<std::byte>(kind) | std::byte{0x80})) {
    throw Error(ErrorCode::peer, "a peer's memory ticket begins with byte " +
                                     std::to_string(std::to_integer<int>(ticket.bytes[0])) + ", which is not a " +
                                     std::string(name_of(kind)) + " ticket; do all ranks run the same build?");
  }
  Fields fields;
  std::memcpy(&fields, ticket.bytes.data() + 1, sizeof(Fields));
  return fields;
}

}  // namespace moelink
