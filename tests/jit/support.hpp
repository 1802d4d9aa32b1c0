// A kernel that belongs to the tests: its descriptor for g++, its source for NVRTC, and the sources it compiles from.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "jit/compile.hpp"
#include "jit/kernel_request.hpp"
#include "jit/sources.hpp"
#include "moelink/error.hpp"
#include "support/nvrtc.hpp"

namespace moelink::test {

enum class Colour : unsigned char { red, green };

struct FillSpec {
  long bytes = 0;
  int threads = 0;
  Colour colour = Colour::red;
  constexpr auto fields(auto&& visit) const { return visit(bytes, threads, colour); }
};

struct Fill {
  static constexpr const char* kName = "Fill";
  static constexpr const char* kHeader = "moelink/test/fill.cuh";
  using Spec = FillSpec;
};

inline constexpr const char* kFillSource = R"(
namespace moelink::test {
enum class Colour : unsigned char { red, green };
struct FillSpec {
  long bytes = 0;
  int threads = 0;
  Colour colour = Colour::red;
};
struct FillArgs {
  unsigned char* out;
  float scale, offset;
};
struct Fill {
  using Spec = FillSpec;
  using Args = FillArgs;
  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    static_assert(spec().colour == Colour::green, "this kernel knows only green");
    for (long i = ex.thread(); i < spec().bytes; i += ex.num_threads()) {
      reinterpret_cast<float*>(args.out)[i] = static_cast<float>(i) * args.scale + args.offset;
    }
  }
};
}
)";

/// The embedded sources and one more, whose text is only viewed.
inline SourceSet sources_with(const char* name, const char* text) {
  static std::vector<std::vector<SourceFile>> kept;  // a SourceSet only views
  const SourceSet embedded = embedded_sources();
  std::vector<SourceFile> files(embedded.files.begin(), embedded.files.end());
  files.push_back({name, text});
  kept.push_back(std::move(files));
  return {kept.back(), to_hex(sha256(embedded.hash + name + text))};
}

inline SourceSet fill_sources() {
  static const SourceSet sources = sources_with(Fill::kHeader, kFillSource);
  return sources;
}

inline KernelRequest fill_request(long bytes = 4096) {
  return make_request<Fill>({.bytes = bytes, .threads = 128, .colour = Colour::green});
}

}  // namespace moelink::test
