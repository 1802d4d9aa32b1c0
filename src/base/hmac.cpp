#include "base/hmac.hpp"

#include <sys/random.h>

#include <algorithm>
#include <string>

#include "base/system_error.hpp"

namespace moelink {
namespace {

std::string_view as_text(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Sha256Digest hmac_sha256(std::string_view key, std::string_view message) {
  const Sha256Digest short_key = key.size() > kSha256BlockBytes ? sha256(key) : Sha256Digest{};
  if (key.size() > kSha256BlockBytes) {
    key = as_text(short_key);
  }
  std::string inner(kSha256BlockBytes, '\x36');
  std::string outer(kSha256BlockBytes, '\x5c');
  for (std::size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  const Sha256Digest inner_digest = sha256(inner.append(message));
  return sha256(outer.append(as_text(inner_digest)));
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  if (a.size() != b.size()) {
    return false;
  }
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= a[i] ^ b[i];
  }
  return difference == std::byte{0};
}

void fill_random(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno != EINTR) {
      throw system_error("getrandom()");
    }
    out = out.subspan(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
}

}  // namespace moelink
