// That a wide line is one access: what the compiler makes of the pack kernel. Nothing here runs it.
#include <gtest/gtest.h>

#include <string>

#include "all_reduce/kernels.hpp"
#include "jit/compile.hpp"
#include "support/nvrtc.hpp"

namespace moelink {
namespace {

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

/// PTX promises the atomicity of scalars, .b128 among them, not that of vectors.
TEST(WideLines, AreStoredAndLoadedAsScalarsOf128BitsAtSystemScope) {
  MOELINK_NEEDS_NVRTC();
  for (const Element element : {Element::bfloat16, Element::float16, Element::float32}) {
    const std::string ptx =
        compile_to_ptx(embedded_sources(), make_request<AllReducePack>(pack_spec(element, 2)), "sm_90a");
    EXPECT_GE(count(ptx, "st.relaxed.sys.global.b128"), kPackLines);
    EXPECT_GE(count(ptx, "ld.relaxed.sys.global.b128"), kPackLines);
    EXPECT_EQ(count(ptx, ".sys.global.v"), 0) << "an access at system scope whose parts may come apart";
  }
}

TEST(WideLines, OneRankAloneSendsNone) {
  MOELINK_NEEDS_NVRTC();
  const std::string ptx =
      compile_to_ptx(embedded_sources(), make_request<AllReducePack>(pack_spec(Element::bfloat16, 1)), "sm_90a");
  EXPECT_EQ(count(ptx, ".b128"), 0);
}

}  // namespace
}  // namespace moelink
