// Transports over the soft NIC, for tests.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/text.hpp"
#include "moelink/error.hpp"
#include "transports/verbs/put.hpp"

namespace moelink::test {

inline std::string soft_nic_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/libmoelink_soft_nic.so";
}

/// A transport over soft NICs that do what `words` say (tests/soft_nic/mischief.hpp), by a seed for each rank.
inline std::unique_ptr<PutTransport> make_soft_put(const PutOptions& options, const std::string& words,
                                                   VerbsSettings settings = {}) {
  settings.library = soft_nic_path();
  void* library = ::dlopen(settings.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* configure = library != nullptr ? ::dlsym(library, "soft_nic_configure") : nullptr;
  if (configure == nullptr) throw Error(ErrorCode::system, text("no soft NIC at ", settings.library));
  reinterpret_cast<void (*)(const char*)>(configure)(text(words, ",seed=", options.rank + 1).c_str());
  return make_verbs_put(options, settings);
}

}  // namespace moelink::test
