#include "transports/descriptors/private_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "base/environment.hpp"
#include "base/system_error.hpp"

namespace moelink {
namespace {

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr std::size_t kNameLength = 17;

std::string random_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number))) {
    throw system_error("getrandom failed");
  }
  constexpr const char* kDigits = "0123456789abcdef";
  std::string name = "x";
  for (int i = 0; i < 16; ++i, number >>= 4) {
    name += kDigits[number & 15];
  }
  return name;
}

UniqueFd open_parent(const std::string& path) {
  // Somebody who leaves may remove the empty parent between the two calls; hence the retry in the constructor.
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    throw system_error("making the socket directory " + path + " failed; name another one with MOELINK_SOCKET_DIR");
  }
  UniqueFd fd(::open(path.c_str(), kOpenDirectory));
  if (!fd) {
    if (errno == ENOENT) {
      return fd;
    }
    throw system_error("opening the socket directory " + path + " failed; name another one with MOELINK_SOCKET_DIR");
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    throw system_error("looking at the socket directory " + path + " failed");
  }
  if (status.st_uid != ::geteuid() || (status.st_mode & 0077) != 0) {
    std::array<char, 8> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", status.st_mode & 07777U);
    throw Error(ErrorCode::system, "the socket directory " + path + " belongs to uid " + std::to_string(status.st_uid) +
                                       " with mode " + mode.data() + "; expected uid " + std::to_string(::geteuid()) +
                                       " and mode 0700. Remove it or name another one with MOELINK_SOCKET_DIR");
  }
  return fd;
}

bool same_file(int parent, const std::string& name, int fd) {
  struct stat by_name {};
  struct stat by_fd {};
  return ::fstatat(parent, name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 && ::fstat(fd, &by_fd) == 0 &&
         by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev;
}

void remove_entry(int parent, const std::string& name, int entry) {
  ::unlinkat(entry, PrivateDirectory::kFileName, 0);
  ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
}

void remove_dead(int parent) {
  const int copy = ::openat(parent, ".", kOpenDirectory);
  if (copy < 0) {
    return;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), &::closedir);
  if (listing == nullptr) {
    ::close(copy);
    return;
  }
  while (const dirent* item = ::readdir(listing.get())) {
    const std::string name(static_cast<const char*>(item->d_name));
    if (name.size() != kNameLength || name.front() != 'x') {
      continue;
    }
    const UniqueFd entry(::openat(parent, name.c_str(), kOpenDirectory));
    if (entry && ::flock(entry.get(), LOCK_EX | LOCK_NB) == 0) {
      remove_entry(parent, name, entry.get());
    }
  }
}

}  // namespace

std::string socket_parent(const std::string& configured) {
  if (!configured.empty()) {
    return configured;
  }
  const std::string& from_environment = Environment::get().socket_directory;
  return !from_environment.empty() ? from_environment : "/tmp/moelink-" + std::to_string(::geteuid());
}

PrivateDirectory::PrivateDirectory(const std::string& parent, const Deadline& deadline) : parent_(parent) {
  while (!try_make()) {
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout, "no directory could be made in " + parent + ": others keep removing it");
    }
  }
}

bool PrivateDirectory::try_make() {
  parent_fd_ = open_parent(parent_);
  if (!parent_fd_) {
    return false;
  }
  remove_dead(parent_fd_.get());
  name_ = random_name();
  if (::mkdirat(parent_fd_.get(), name_.c_str(), 0700) != 0) {
    if (errno == ENOENT || errno == EEXIST) {
      return false;
    }
    throw system_error("making a directory in " + parent_ + " failed");
  }
  lock_ = UniqueFd(::openat(parent_fd_.get(), name_.c_str(), kOpenDirectory));
  if (!lock_ && errno != ENOENT) {
    const int error = errno;
    ::unlinkat(parent_fd_.get(), name_.c_str(), AT_REMOVEDIR);
    throw system_error("opening " + parent_ + "/" + name_ + " failed", error);
  }
  return lock_ && ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 && same_file(parent_fd_.get(), name_, lock_.get());
}

PrivateDirectory::~PrivateDirectory() {
  remove_entry(parent_fd_.get(), name_, lock_.get());
  ::rmdir(parent_.c_str());
}

}  // namespace moelink
