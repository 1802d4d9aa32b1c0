#include "transports/process_token.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <fstream>
#include <mutex>

#include "base/system_error.hpp"

namespace moelink {

std::uint64_t process_token() {
  static std::mutex mutex;
  static std::uint64_t token = 0;
  static pid_t owner = 0;
  const std::scoped_lock lock(mutex);
  if (owner != ::getpid()) {
    if (::getrandom(&token, sizeof(token), 0) != static_cast<ssize_t>(sizeof(token))) {
      throw system_error("getrandom failed");
    }
    owner = ::getpid();
  }
  return token;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) && !id.empty() ? id : "unknown";
}

}  // namespace moelink
