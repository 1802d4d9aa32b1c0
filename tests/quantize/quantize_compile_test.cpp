// The quantisation kernels for Hopper and Blackwell, without a GPU: they compile, spill nothing, and convert with the
// instructions that the chip has.
#include <gtest/gtest.h>

#include <string>

#include "jit/compile.hpp"
#include "jit/support.hpp"
#include "moelink/device/moe/local_decode.cuh"
#include "moelink/device/quant/arrange_scales.cuh"
#include "moelink/device/quant/quantize.cuh"

namespace moelink::test {
namespace {

constexpr QuantFormat kFormats[] = {QuantFormat::fp8, QuantFormat::fp8_pow2, QuantFormat::mxfp8, QuantFormat::mxfp4,
                                    QuantFormat::nvfp4};

class QuantizeCompile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { MOELINK_NEEDS_NVRTC(); }
  template <class K>
  static void expect_no_spills(const typename K::Spec& spec) {
    const KernelRequest request = make_request<K>(spec);
    const CompiledKernel kernel = compile(embedded_sources(), request, GetParam());
    EXPECT_FALSE(kernel.usage.spills()) << request.expression;
  }
};

TEST_P(QuantizeCompile, DoesNotSpill) {
  for (const QuantFormat format : kFormats) {
    for (const Element input : {Element::bfloat16, Element::float16}) {
      expect_no_spills<Quantize>(with_threads({.format = format, .input = input, .columns = 7168}));
    }
    expect_no_spills<Quantize>(with_threads({.format = format, .columns = 2880}));
    expect_no_spills<Quantize>(with_threads({.format = format, .columns = 256}));
  }
  expect_no_spills<ArrangeScales>({.bytes = 1, .num_blocks = 224, .threads = 256});
  expect_no_spills<ArrangeScales>({.bytes = 4, .num_blocks = 56, .threads = 256});
}

TEST_P(QuantizeCompile, ConvertsByTheInstructionsThatTheChipHas) {
  const auto converts = [](QuantFormat format, const std::string& instruction) {
    const QuantizeSpec spec = with_threads({.format = format, .columns = 7168});
    return compile_to_ptx(embedded_sources(), make_request<Quantize>(spec), GetParam()).find(instruction) !=
           std::string::npos;
  };
  const bool blackwell = std::string(GetParam()) == "sm_100a";
  EXPECT_TRUE(converts(QuantFormat::fp8, "cvt.rn.satfinite.e4m3x2.f32"));
  EXPECT_TRUE(converts(QuantFormat::mxfp8, "cvt.rn.satfinite.e4m3x2.f32"));
  EXPECT_EQ(converts(QuantFormat::mxfp4, "cvt.rn.satfinite.e2m1x2.f32"), blackwell);
  EXPECT_EQ(converts(QuantFormat::nvfp4, "cvt.rn.satfinite.e2m1x2.f32"), blackwell);
}

TEST_P(QuantizeCompile, RowsMoveByTheWidestAccessesThatTheChipHas) {
  const bool blackwell = std::string(GetParam()) == "sm_100a";
  const auto uses = [](const KernelRequest& request, const std::string& instruction) {
    return compile_to_ptx(embedded_sources(), request, GetParam()).find(instruction) != std::string::npos;
  };
  const KernelRequest quantize = make_request<Quantize>(with_threads({.format = QuantFormat::fp8, .columns = 7168}));
  const KernelRequest decode =
      make_request<LocalDecode>({.row_bytes = 14336, .num_experts = 256, .top_k = 8, .threads = 256});
  for (const KernelRequest& request : {quantize, decode}) {
    EXPECT_EQ(uses(request, "ld.global.nc.L1::no_allocate.L2::256B.v8.b32"), blackwell) << request.name;
    EXPECT_TRUE(uses(request, "ld.global.nc.L1::no_allocate.L2::256B.v4.b32"))
        << request.name;  // memory not so aligned
  }
  EXPECT_EQ(uses(decode, "st.global.v8.b32"), blackwell);
}

INSTANTIATE_TEST_SUITE_P(Architectures, QuantizeCompile, testing::Values("sm_90a", "sm_100a"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moelink::test
