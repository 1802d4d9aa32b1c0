// SHA-256 (FIPS 180-4). For cache keys and checksums of small files; a few hundred MB/s.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moelink {

using Sha256Digest = std::array<std::uint8_t, 32>;
inline constexpr std::size_t kSha256BlockBytes = 64;

[[nodiscard]] Sha256Digest sha256(std::string_view bytes);

/// Lower-case hexadecimal, 64 characters.
[[nodiscard]] std::string to_hex(const Sha256Digest& digest);

}  // namespace moelink
