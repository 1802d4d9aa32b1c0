// Host memory that processes of one machine and user can map, each other's too.
#pragma once

#include <cstddef>
#include <string>

namespace moelink::perf {

/// Owns one mapping. Pages come into being as they are touched. Throws std::system_error.
class SharedPages {
 public:
  SharedPages() noexcept = default;
  explicit SharedPages(std::size_t size_bytes);
  /// Another process's, by its path(), while that one has it.
  SharedPages(const std::string& path, std::size_t size_bytes);
  ~SharedPages();
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// "/proc/4711/fd/9".
  [[nodiscard]] std::string path() const;

 private:
  void map();

  int file_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace moelink::perf
