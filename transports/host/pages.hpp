// Pages of host memory mapped into this process.
#pragma once

#include <cstddef>
#include <span>

namespace moelink {

/// Owns one mmap. Movable, not copyable.
class HostPages {
 public:
  /// Private zero pages. `size_bytes` is rounded up to whole pages.
  [[nodiscard]] static HostPages anonymous(std::size_t size_bytes);
  /// The first `size_bytes` (whole pages) of a memory file, shared with whoever else maps it.
  [[nodiscard]] static HostPages of_file(int fd, std::size_t size_bytes);
  /// `size_bytes` rounded up to whole pages. Throws ErrorCode::invalid_argument for 0 and where it overflows.
  [[nodiscard]] static std::size_t round_up(std::size_t size_bytes);

  ~HostPages();
  HostPages(HostPages&& other) noexcept;
  HostPages& operator=(HostPages&&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

  void store(std::size_t offset_bytes, std::span<const std::byte> source) const;
  void load(std::size_t offset_bytes, std::span<std::byte> destination) const;

 private:
  HostPages(std::byte* data, std::size_t size_bytes) noexcept : data_(data), size_bytes_(size_bytes) {}
  std::byte* data_;
  std::size_t size_bytes_;
};

}  // namespace moelink
