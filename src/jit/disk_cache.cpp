#include "jit/disk_cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/sha256.hpp"
#include "base/unique_fd.hpp"
#include "jit/cache_entry.hpp"

namespace moelink {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr std::string_view kTemporaryPrefix = ".writing-";

std::string system_words() { return std::generic_category().message(errno); }

// Every missing component of `path`, private to the user.
bool make_directories(const std::string& path) {
  for (auto slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    // A component that exists, or that another process makes at this moment, is as good; if one cannot be made, the
    // last one cannot either.
    ::mkdir(path.substr(0, slash).c_str(), S_IRWXU);
  }
  return ::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST;
}

std::optional<std::string> read_all(int fd, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(fd, text.data() + done, bytes - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return std::nullopt;
    }
    done += static_cast<std::size_t>(n);
  }
  return text;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  return true;
}

// Random rather than by process id: containers that share a directory have equal process ids.
std::string temporary_name() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) {
    random = static_cast<std::uint64_t>(::getpid());
  }
  return std::string(kTemporaryPrefix) + std::to_string(random);
}

// Removes what processes that were killed while writing left behind.
void sweep(int directory_fd) {
  constexpr std::time_t kAbandonedSeconds = 3600;
  DIR* directory = ::fdopendir(::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory == nullptr) {
    return;
  }
  const std::time_t now = std::time(nullptr);
  while (const dirent* entry = ::readdir(directory)) {
    struct stat info {};
    if (std::string_view(entry->d_name).starts_with(kTemporaryPrefix) &&
        ::fstatat(directory_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        now - info.st_mtime > kAbandonedSeconds) {
      ::unlinkat(directory_fd, entry->d_name, 0);
    }
  }
  ::closedir(directory);
}

}  // namespace

DiskCache::DiskCache(const std::string& directory, uid_t owner) : directory_(directory), owner_(owner) {
  if (directory.empty()) {
    reason_ = "neither MOELINK_CACHE_DIR, XDG_CACHE_HOME nor HOME names a directory";
    return;
  }
  struct stat info {};
  const bool made = make_directories(directory);
  UniqueFd fd(made ? ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1);
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) {
    reason_ = "it cannot be made or opened (" + system_words() + ")";
  } else if (info.st_uid != owner) {
    reason_ = "it belongs to user " + std::to_string(info.st_uid) + ", not to user " + std::to_string(owner);
  } else if ((info.st_mode & kOthersWrite) != 0) {
    reason_ = "other users can write to it; run chmod 700 on it";
  } else {
    sweep(fd.get());
    directory_fd_ = std::move(fd);
    return;
  }
  warn_once("the kernel cache " + directory + " is not used: " + reason_ +
            ". Kernels are compiled again in every process; set MOELINK_CACHE_DIR to a private directory");
}

const DiskCache& DiskCache::user() {
  static const DiskCache cache(Environment::get().cache ? Environment::get().cache_directory : std::string());
  return cache;
}

std::string DiskCache::file_name(std::string_view key) { return to_hex(sha256(key)) + ".kernel"; }

std::optional<CompiledKernel> DiskCache::find(std::string_view key) const {
  if (!usable()) {
    return std::nullopt;
  }
  constexpr off_t kMaxBytes = off_t{256} << 20;
  const UniqueFd fd(
      ::openat(directory_fd_.get(), file_name(key).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != owner_ ||
      (info.st_mode & kOthersWrite) != 0 || info.st_size > kMaxBytes) {
    return std::nullopt;
  }
  const auto bytes = read_all(fd.get(), static_cast<std::size_t>(info.st_size));
  return bytes ? decode_entry(key, *bytes) : std::nullopt;
}

bool DiskCache::store(std::string_view key, const CompiledKernel& kernel) const {
  if (!usable()) {
    return false;
  }
  const std::string temporary = temporary_name();
  const UniqueFd fd(
      ::openat(directory_fd_.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const bool stored =
      fd.get() >= 0 && write_all(fd.get(), encode_entry(key, kernel)) &&
      ::renameat(directory_fd_.get(), temporary.c_str(), directory_fd_.get(), file_name(key).c_str()) == 0;
  if (!stored) {
    warn_once("the kernel cache " + directory_ + " cannot be written (" + system_words() +
              "); kernels are compiled again in every process");
    if (fd.get() >= 0) {
      ::unlinkat(directory_fd_.get(), temporary.c_str(), 0);
    }
  }
  return stored;
}

}  // namespace moelink
