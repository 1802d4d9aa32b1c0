// The sources that kernels are compiled from.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moelink {

/// One header, by the name that #include uses.
struct SourceFile {
  const char* name;
  const char* text;
};

/// Headers that include nothing but each other, and a hash of all their names and contents.
struct SourceSet {
  std::span<const SourceFile> files;
  std::string hash;
};

/// kernels/ and protocol/ as they were when the library was built. Views of static memory.
[[nodiscard]] SourceSet embedded_sources();

}  // namespace moelink
