// A file in memory, read by mapping it: only the pages that are touched are ever read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace moelink::engine {

/// A read-only mapping of a whole file. Throws ErrorCode::system, naming the file, if it cannot be opened or mapped.
/// The file must not shrink while it is mapped: reading past its new end kills the process (SIGBUS).
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_bytes_}; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace moelink::engine
