#include "jit/user_sources.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

using Headers = std::span<const std::pair<std::string, std::string>>;

/// What a SourceSet views.
struct KeptSources {
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<SourceFile> files;
};

std::string hash_of(Headers headers, const SourceSet& embedded) {
  std::string digests = embedded.hash;
  for (const auto& [name, source] : headers) {
    digests += text('\n', name, ' ', to_hex(sha256(source)));
  }
  return to_hex(sha256(digests));
}

void check_names(const std::vector<SourceFile>& files) {
  std::vector<std::string_view> names;
  names.reserve(files.size());
  for (const SourceFile& file : files) {
    names.emplace_back(file.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw Error(ErrorCode::invalid_argument,
                text("there are two headers \"", *twice, "\" to compile kernels from; give each a name of its own"));
  }
}

}  // namespace

SourceSet with_user_sources(Headers headers) {
  static std::mutex mutex;
  // Never destroyed: kernels may be used while other static objects are.
  static auto& kept = *new std::map<std::string, std::unique_ptr<KeptSources>>();
  const SourceSet embedded = embedded_sources();
  const std::string hash = hash_of(headers, embedded);
  const std::scoped_lock lock(mutex);
  auto& sources = kept[hash];
  if (sources == nullptr) {
    auto fresh = std::make_unique<KeptSources>();
    fresh->headers.assign(headers.begin(), headers.end());
    fresh->files.assign(embedded.files.begin(), embedded.files.end());
    for (const auto& [name, source] : fresh->headers) {
      fresh->files.push_back({.name = name.c_str(), .text = source.c_str()});
    }
    check_names(fresh->files);
    sources = std::move(fresh);
  }
  return {sources->files, hash};
}

}  // namespace moelink
