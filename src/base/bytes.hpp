// Little-endian messages, written and read field by field. What is read comes from other ranks and is not trusted:
// every length is checked against what is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {

using Bytes = std::vector<std::byte>;

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class ByteWriter {
 public:
  void u32(std::uint32_t value) { integer(value, 4); }
  void u64(std::uint64_t value) { integer(value, 8); }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  /// A length, then the bytes.
  void block(std::span<const std::byte> bytes) {
    u32(static_cast<std::uint32_t>(bytes.size()));
    raw(bytes);
  }
  void string(std::string_view value) { block(bytes_of(value)); }

  [[nodiscard]] const Bytes& bytes() const noexcept { return bytes_; }
  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  void integer(std::uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) {
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
  }
  Bytes bytes_;
};

/// Throws ErrorCode::peer when the message is shorter than its fields say.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  [[nodiscard]] std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  [[nodiscard]] std::uint64_t u64() { return integer(8); }
  [[nodiscard]] std::span<const std::byte> raw(std::size_t num_bytes) {
    if (num_bytes > rest_.size()) {
      throw Error(ErrorCode::peer, text("a message of another rank ends ", num_bytes - rest_.size(),
                                        " bytes early; it is damaged or not of this protocol"));
    }
    const auto taken = rest_.first(num_bytes);
    rest_ = rest_.subspan(num_bytes);
    return taken;
  }
  [[nodiscard]] std::span<const std::byte> block() { return raw(u32()); }
  [[nodiscard]] std::string string() {
    const auto bytes = block();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

 private:
  std::uint64_t integer(int num_bytes) {
    const auto bytes = raw(static_cast<std::size_t>(num_bytes));
    std::uint64_t value = 0;
    for (int i = 0; i < num_bytes; ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]) << (8 * i);
    }
    return value;
  }
  std::span<const std::byte> rest_;
};

}  // namespace moelink
