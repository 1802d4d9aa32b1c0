// Libraries that are looked for at run time, so that programs start without them.
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {

/// A library that the process loads and keeps: its functions are called until the end.
class SharedLibrary {
 public:
  /// The first of these files that the loader can load; none of them is no error.
  explicit SharedLibrary(std::span<const std::string> files) {
    for (const std::string& file : files) {
      handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        file_ = file;
        return;
      }
    }
  }
  explicit SharedLibrary(const std::string& file) : SharedLibrary(std::span(&file, 1)) {}

  [[nodiscard]] bool is_loaded() const { return handle_ != nullptr; }
  /// The one that was loaded.
  [[nodiscard]] const std::string& file() const { return file_; }

  /// Null, and false, if the library lacks the function.
  template <class Function>
  bool find(Function*& slot, const char* name) const {
    slot = reinterpret_cast<Function*>(dlsym(handle_, name));
    return slot != nullptr;
  }

  /// Throws ErrorCode::unsupported, with what to do, if the library lacks the function.
  template <class Function>
  void need(Function*& slot, const char* name, const char* remedy) const {
    if (!find(slot, name)) throw Error(ErrorCode::unsupported, text(file_, " lacks ", name, "; ", remedy));
  }

 private:
  void* handle_ = nullptr;
  std::string file_;
};

}  // namespace moelink
