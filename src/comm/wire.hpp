// The bytes of the TCP bootstrap (docs/bootstrap.md): a handshake of two messages of fixed size, then frames.
// Little-endian throughout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "comm/fault_board.hpp"

namespace moelink {

inline constexpr std::string_view kWireMagic = "moelink\n";
/// Raised with every change of what follows.
inline constexpr std::uint32_t kWireVersion = 1;

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

/// What the hub says first.
struct Greeting {
  static constexpr std::size_t kBytes = 48;
  std::uint32_t version = kWireVersion;
  bool key_required = false;
  Nonce nonce{};
};

/// What a rank answers.
struct Hello {
  static constexpr std::size_t kBytes = 104;
  std::uint32_t version = kWireVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t patience_ms = 0;  ///< how long this rank is still willing to wait for the others
  std::uint64_t job = 0;          ///< tells this group from others that could meet at the same port
  bool has_key = false;
  Nonce nonce{};
  Proof proof{};  ///< of the key; zero without one
};

[[nodiscard]] Bytes encode(const Greeting& greeting);
[[nodiscard]] Bytes encode(const Hello& hello);
/// Nothing if the magic is not there. The rest is read only from messages of kBytes; the version is not judged.
[[nodiscard]] std::optional<Greeting> decode_greeting(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<Hello> decode_hello(std::span<const std::byte> bytes);

/// What only a holder of `secret` can know about this one handshake; `side` keeps one side's proof from serving as the
/// other's.
[[nodiscard]] Proof prove(std::string_view secret, std::string_view side, const Greeting& greeting, const Hello& hello);

enum class FrameType : std::uint32_t {
  accept = 1,  ///< hub: you are in; the hub's proof of the key
  refuse,      ///< hub: you are not, and why (a fault)
  start,       ///< hub: everybody is in
  contribute,  ///< rank: its part of a round (a Contribution)
  result,      ///< hub: all parts of a round
  fault,       ///< either: the group has ended (a fault)
  leave,       ///< either: this side is going in good order
};

struct Frame {
  static constexpr std::size_t kHeaderBytes = 16;
  FrameType type = FrameType::leave;
  std::uint64_t round = 0;
  Bytes payload = {};
};

struct FrameHeader {
  FrameType type;
  std::uint32_t payload_bytes;
  std::uint64_t round;
};
[[nodiscard]] Bytes encode(const Frame& frame);
[[nodiscard]] FrameHeader decode_frame_header(std::span<const std::byte> bytes);

[[nodiscard]] Bytes encode(const GroupFault& fault);
[[nodiscard]] GroupFault decode_fault(std::span<const std::byte> bytes);

}  // namespace moelink
