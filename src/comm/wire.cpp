#include "comm/wire.hpp"

#include <algorithm>
#include <string>

#include "base/hmac.hpp"

namespace moelink {
namespace {

constexpr std::size_t kMaxSentenceBytes = 4096;

bool take_magic(ByteReader& in) {
  const auto magic = in.raw(kWireMagic.size());
  return std::ranges::equal(magic, bytes_of(kWireMagic));
}

template <std::size_t N>
void read_array(ByteReader& in, std::array<std::byte, N>& out) {
  std::ranges::copy(in.raw(N), out.begin());
}

Bytes encode_without_proof(const Hello& hello) {
  ByteWriter out;
  out.raw(bytes_of(kWireMagic));
  out.u32(hello.version);
  out.u32(hello.rank);
  out.u32(hello.size);
  out.u32(hello.patience_ms);
  out.u64(hello.job);
  out.u64(hello.has_key ? 1 : 0);
  out.raw(hello.nonce);
  return out.take();
}

}  // namespace

Bytes encode(const Greeting& greeting) {
  ByteWriter out;
  out.raw(bytes_of(kWireMagic));
  out.u32(greeting.version);
  out.u32(greeting.key_required ? 1 : 0);
  out.raw(greeting.nonce);
  return out.take();
}

Bytes encode(const Hello& hello) {
  ByteWriter out;
  out.raw(encode_without_proof(hello));
  out.raw(hello.proof);
  return out.take();
}

std::optional<Greeting> decode_greeting(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (!take_magic(in)) {
    return std::nullopt;
  }
  Greeting greeting;
  greeting.version = in.u32();
  greeting.key_required = in.u32() != 0;
  read_array(in, greeting.nonce);
  return greeting;
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (!take_magic(in)) {
    return std::nullopt;
  }
  Hello hello;
  hello.version = in.u32();
  hello.rank = in.u32();
  hello.size = in.u32();
  hello.patience_ms = in.u32();
  hello.job = in.u64();
  hello.has_key = in.u64() != 0;
  read_array(in, hello.nonce);
  read_array(in, hello.proof);
  return hello;
}

Proof prove(std::string_view secret, std::string_view side, const Greeting& greeting, const Hello& hello) {
  std::string message(side);
  for (const Bytes& part : {encode(greeting), encode_without_proof(hello)}) {
    message.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  const Sha256Digest digest = hmac_sha256(secret, message);
  Proof proof;
  std::ranges::copy(std::as_bytes(std::span(digest)), proof.begin());
  return proof;
}

Bytes encode(const Frame& frame) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(frame.type));
  out.u32(static_cast<std::uint32_t>(frame.payload.size()));
  out.u64(frame.round);
  out.raw(frame.payload);
  return out.take();
}

FrameHeader decode_frame_header(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto type = static_cast<FrameType>(in.u32());
  const std::uint32_t payload_bytes = in.u32();
  return {type, payload_bytes, in.u64()};
}

Bytes encode(const GroupFault& fault) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(fault.code));
  out.u32(static_cast<std::uint32_t>(fault.rank));
  out.string(std::string_view(fault.sentence).substr(0, kMaxSentenceBytes));
  return out.take();
}

GroupFault decode_fault(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  GroupFault fault;
  const std::uint32_t code = in.u32();
  fault.code = code <= static_cast<std::uint32_t>(ErrorCode::system) ? static_cast<ErrorCode>(code) : ErrorCode::peer;
  fault.rank = static_cast<int>(in.u32());
  fault.sentence = in.string();
  return fault;
}

}  // namespace moelink
