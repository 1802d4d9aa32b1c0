// Compiled kernels on disk. A cache that cannot be used costs time, never a result: nothing here throws.
//
// One file per kernel, named by the SHA-256 of its key (compile.hpp), holding the key itself, the kernel and a SHA-256
// of all that. Files appear by rename, so that a reader in another process sees all of a file or none, and whoever
// writes last wins with the same contents. What is truncated, altered or of another format is not found, and written
// again.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"
#include "jit/compiled_kernel.hpp"

namespace moelink {

class DiskCache {
 public:
  /// Uses `directory`, creating it with mode 0700 where it is missing. It must belong to `owner` and be writable by
  /// nobody else: whoever can write there can run code on the GPU as this user. Otherwise, or where it cannot be made,
  /// the cache stays empty and says so once. An empty name: no cache, nothing said.
  explicit DiskCache(const std::string& directory, uid_t owner = geteuid());

  /// The cache of this process's user, as the environment says (MOELINK_CACHE, MOELINK_CACHE_DIR).
  [[nodiscard]] static const DiskCache& user();

  [[nodiscard]] bool usable() const { return static_cast<bool>(directory_fd_); }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  /// Why it is not usable; empty if it is.
  [[nodiscard]] const std::string& reason() const { return reason_; }

  [[nodiscard]] std::optional<CompiledKernel> find(std::string_view key) const;
  /// False, and said once, where the file could not be written.
  bool store(std::string_view key, const CompiledKernel& kernel) const;

  /// The name of the file that `key` is stored in, inside directory().
  [[nodiscard]] static std::string file_name(std::string_view key);

 private:
  std::string directory_;
  std::string reason_;
  uid_t owner_;
  UniqueFd directory_fd_;
};

}  // namespace moelink
