// HMAC-SHA256 (RFC 2104) and what a challenge needs besides.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/sha256.hpp"

namespace moelink {

[[nodiscard]] Sha256Digest hmac_sha256(std::string_view key, std::string_view message);

/// Compares without telling by its duration where the first difference is.
[[nodiscard]] bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

/// Fills `out` from the kernel's generator.
void fill_random(std::span<std::byte> out);

}  // namespace moelink
