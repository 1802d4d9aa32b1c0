#include "base/log.hpp"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "base/environment.hpp"

namespace moelink {

void warn_once(std::string_view sentence) {
  if (!Environment::get().warnings) {
    return;
  }
  static std::mutex mutex;
  static std::set<std::string, std::less<>> said;
  const std::scoped_lock lock(mutex);
  if (said.emplace(sentence).second) {
    std::fprintf(stderr, "moelink: warning: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
  }
}

}  // namespace moelink
