#include "jit/cache_entry.hpp"

#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/sha256.hpp"

namespace moelink {
namespace {

// Changes with the format. Layout: magic, key, lowered name, usage, cubin, SHA-256 of everything before; each string
// after its length as 64 bits. Read only on the machine that wrote it, or its like: no byte order is fixed.
constexpr std::string_view kMagic = "moelink kernel 1\n";

std::string_view checksum_of(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

class Writer {
 public:
  void raw(std::string_view bytes) { bytes_.append(bytes); }
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    raw(text);
  }
  template <class T>
  void number(T value) {
    raw({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  std::string finish() {
    raw(checksum_of(sha256(bytes_)));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Reads what Writer wrote. Past the end everything is empty and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view raw(std::uint64_t size) {
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) {
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view text() { return raw(number<std::uint64_t>()); }
  template <class T>
  T number() {
    T value{};
    if (const std::string_view bytes = raw(sizeof(T)); ok_) {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
    return value;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string encode_entry(std::string_view key, const CompiledKernel& kernel) {
  Writer writer;
  writer.raw(kMagic);
  writer.text(key);
  writer.text(kernel.lowered_name);
  writer.number(kernel.usage);
  writer.text(kernel.cubin);
  return writer.finish();
}

std::optional<CompiledKernel> decode_entry(std::string_view key, std::string_view bytes) {
  constexpr std::size_t kChecksumBytes = std::tuple_size_v<Sha256Digest>;
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + kChecksumBytes) {
    return std::nullopt;
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (bytes.substr(body.size()) != checksum_of(sha256(body))) {
    return std::nullopt;
  }
  Reader reader(body.substr(kMagic.size()));
  if (reader.text() != key) {
    return std::nullopt;
  }
  CompiledKernel kernel;
  kernel.lowered_name = reader.text();
  kernel.usage = reader.number<ResourceUsage>();
  kernel.cubin = reader.text();
  kernel.origin = KernelOrigin::disk;
  return reader.ok() && reader.at_end() ? std::optional(std::move(kernel)) : std::nullopt;
}

}  // namespace moelink
