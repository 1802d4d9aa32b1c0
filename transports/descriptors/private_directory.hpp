// A directory that only this user can enter, for sockets; gone with its owner.
#pragma once

#include <string>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace moelink {

/// NOTE [directories of the dead]
/// Each owner makes <parent>/x<16 hex digits> and holds a flock on it. The kernel drops the lock when the process ends,
/// however it ends, so whoever can take the lock of a directory knows that its owner is dead and removes it; no process
/// id is compared, which would fail across pid namespaces and when ids are reused. A directory can be removed between
/// its making and its locking; the owner sees that its path no longer leads to what it locked, and makes another.
class PrivateDirectory {
 public:
  /// Makes `parent` (0700) if need be, removes what dead owners left in it, then makes a directory in it. Throws
  /// ErrorCode::system if `parent` is not a directory of this user that nobody else can enter.
  PrivateDirectory(const std::string& parent, const Deadline& deadline);
  /// Removes `file_name` and the directory, and the parent if it is empty.
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;

  /// The one file that may be made in it.
  static constexpr const char* kFileName = "socket";
  [[nodiscard]] std::string file_path() const { return parent_ + "/" + name_ + "/" + kFileName; }

 private:
  bool try_make();

  std::string parent_;
  std::string name_;
  UniqueFd parent_fd_;
  UniqueFd lock_;
};

/// `configured`, else MOELINK_SOCKET_DIR, else /tmp/moelink-<uid>.
[[nodiscard]] std::string socket_parent(const std::string& configured);

}  // namespace moelink
