// NVLS without multicast hardware: what the compiler makes of the kernel, and who gets it. Nothing here runs it.
#include <gtest/gtest.h>

#include <string>

#include "all_reduce/kernels.hpp"
#include "jit/compile.hpp"
#include "support/nvrtc.hpp"

namespace moelink {
namespace {

class NvlsPtx : public testing::TestWithParam<Element> {
 protected:
  void SetUp() override { MOELINK_NEEDS_NVRTC(); }

  static std::string ptx(bool multicast) {
    return compile_to_ptx(embedded_sources(), make_request<AllReduceTwoShot>(two_shot_spec(GetParam(), 4, multicast)),
                          "sm_90a");
  }
  static bool contains(const std::string& text, const std::string& word) {
    return text.find(word) != std::string::npos;
  }
  /// How the sum of sixteen bytes is spelt.
  static std::string load_reduce() {
    const std::string start = "multimem.ld_reduce.relaxed.sys.global.add";
    return GetParam() == Element::float32    ? start + ".v4.f32"
           : GetParam() == Element::bfloat16 ? start + ".acc::f32.v4.bf16x2"
                                             : start + ".acc::f32.v4.f16x2";
  }
};

TEST_P(NvlsPtx, SwitchLoadsTheSumInFp32AndStoresToAll) {
  const std::string nvls = ptx(true);
  EXPECT_TRUE(contains(nvls, load_reduce())) << "no " << load_reduce();
  EXPECT_TRUE(contains(nvls, "multimem.st.relaxed.sys.global.v4.f32"));
}

/// Without it a sum may miss what was staged under the plain address, and the copy out what was stored to all.
TEST_P(NvlsPtx, FencesBetweenPlainAndMulticastAddressesAfterEachWait) {
  const std::string nvls = ptx(true);
  const std::string fence = "fence.proxy.alias";
  const std::size_t first = nvls.find(fence);
  ASSERT_NE(first, std::string::npos);
  const std::size_t second = nvls.find(fence, first + 1);
  ASSERT_NE(second, std::string::npos);
  EXPECT_LT(first, nvls.find("multimem.ld_reduce"));
  EXPECT_GT(second, nvls.rfind("multimem.st"));
}

TEST_P(NvlsPtx, UnicastTwinNeverTouchesTheSwitch) {
  const std::string unicast = ptx(false);
  EXPECT_FALSE(contains(unicast, "multimem"));
  EXPECT_FALSE(contains(unicast, "fence.proxy"));  // of no use there
}

INSTANTIATE_TEST_SUITE_P(Elements, NvlsPtx, testing::Values(Element::bfloat16, Element::float16, Element::float32),
                         [](const auto& element) {
                           return element.param == Element::bfloat16  ? "bf16"
                                  : element.param == Element::float16 ? "fp16"
                                                                      : "fp32";
                         });

}  // namespace
}  // namespace moelink
