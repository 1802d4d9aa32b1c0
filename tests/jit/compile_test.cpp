// jit/compile.hpp: NVRTC, without a GPU.
#include "jit/compile.hpp"

#include <gtest/gtest.h>

#include "jit/support.hpp"

namespace moelink {
namespace {

using namespace test;

class CompileOnce : public testing::Test {
 protected:
  void SetUp() override { MOELINK_NEEDS_NVRTC(); }
};
class Compile : public CompileOnce, public testing::WithParamInterface<const char*> {};

std::string message_of(const SourceSet& sources, const KernelRequest& request, const std::string& architecture) {
  try {
    (void)compile(sources, request, architecture);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile);
    return error.what();
  }
  return "it compiled";
}

TEST_P(Compile, GivesACubinItsFunctionAndItsResources) {
  const CompiledKernel kernel = compile(fill_sources(), fill_request(), GetParam());
  EXPECT_EQ(kernel.cubin.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_NE(kernel.cubin.find(kernel.lowered_name), std::string::npos);
  EXPECT_GT(kernel.usage.registers, 0);
  EXPECT_FALSE(kernel.usage.spills());
}

TEST_P(Compile, ProductAndSumAreRoundedEach) {
  const std::string ptx = compile_to_ptx(fill_sources(), fill_request(), GetParam());
  EXPECT_EQ(ptx.find("fma.rn.f32"), std::string::npos);
  EXPECT_NE(ptx.find("mul.rn.f32"), std::string::npos);
  EXPECT_NE(ptx.find("add.rn.f32"), std::string::npos);
}

TEST_P(Compile, SpillsAreSeen) {
  // 200 live values in the 64 registers that 1024 threads leave to each.
  constexpr const char* kSpill = R"(
namespace moelink::test {
struct SpillSpec { int threads; };
struct SpillArgs { const volatile float* in; volatile float* out; };
struct Spill {
  using Spec = SpillSpec;
  using Args = SpillArgs;
  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S, const Args& args) {
    float live[200];
#pragma unroll
    for (int i = 0; i < 200; ++i) live[i] = args.in[i * 1024 + ex.thread()];
#pragma unroll
    for (int i = 0; i < 200; ++i) args.out[(199 - i) * 1024 + ex.thread()] = live[199 - i] * live[i];
  }
};
}
)";
  const CompiledKernel kernel =
      compile(sources_with("moelink/test/spill.cuh", kSpill),
              {.name = "Spill",
               .header = "moelink/test/spill.cuh",
               .expression = "moelink::entry<moelink::test::Spill, moelink::test::SpillSpec{1024}>",
               .threads = 1024},
              GetParam());
  EXPECT_TRUE(kernel.usage.spills());
  EXPECT_GT(kernel.usage.spill_store_bytes, 0);
}

TEST_P(Compile, BadSourceNamesKernelArchitectureAndLine) {
  const std::string message =
      message_of(sources_with(Fill::kHeader, "namespace moelink {\nint broken = ;\n}"), fill_request(), GetParam());
  EXPECT_NE(message.find(fill_request().expression), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam()), std::string::npos) << message;
  EXPECT_NE(message.find("moelink/test/fill.cuh(2): error"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Architectures, Compile, testing::Values("sm_90a", "sm_100a"),
                         [](const auto& value) { return std::string(value.param); });

TEST_F(CompileOnce, SpecReachesTheKernelAsAConstant) {
  const KernelRequest red = make_request<Fill>({.bytes = 16, .threads = 32, .colour = Colour::red});
  EXPECT_NE(message_of(fill_sources(), red, "sm_90a").find("this kernel knows only green"), std::string::npos);
}

TEST_F(CompileOnce, HeaderThatIsNotEmbeddedIsAnErrorThatNamesIt) {
  KernelRequest request = fill_request();
  request.header = "moelink/device/no_such_kernel.cuh";
  EXPECT_NE(message_of(fill_sources(), request, "sm_90a").find("no_such_kernel.cuh"), std::string::npos);
}

TEST_F(CompileOnce, ArchitectureTheCompilerDoesNotKnowIsAnErrorThatNamesIt) {
  EXPECT_NE(message_of(fill_sources(), fill_request(), "sm_999a").find("sm_999a"), std::string::npos);
}

TEST_F(CompileOnce, KeyChangesWithAllThatTheKernelDependsOn) {
  const std::string key = compile_key(fill_sources(), fill_request(), "sm_90a");
  EXPECT_EQ(key, compile_key(fill_sources(), fill_request(), "sm_90a"));
  EXPECT_NE(key, compile_key(fill_sources(), fill_request(), "sm_100a"));
  EXPECT_NE(key, compile_key(fill_sources(), fill_request(8192), "sm_90a"));
  EXPECT_NE(key, compile_key(sources_with(Fill::kHeader, "other"), fill_request(), "sm_90a"));
  KernelRequest other_header = fill_request();
  other_header.header = "moelink/test/other.cuh";
  EXPECT_NE(key, compile_key(fill_sources(), other_header, "sm_90a"));
}

TEST(Architecture, IsTheOneThatMakesTheMostOfADevice) {
  EXPECT_EQ(architecture_of(8, 0), "sm_80");
  EXPECT_EQ(architecture_of(8, 9), "sm_89");
  EXPECT_EQ(architecture_of(9, 0), "sm_90a");
  EXPECT_EQ(architecture_of(10, 0), "sm_100a");
  EXPECT_EQ(architecture_of(10, 3), "sm_103a");
  EXPECT_EQ(architecture_of(12, 0), "sm_120a");
}

TEST(PtxasLog, IsReadLineByLine) {
  const ResourceUsage usage = parse_ptxas_log(
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers\n");
  EXPECT_EQ(usage,
            (ResourceUsage{.registers = 40, .stack_bytes = 16, .spill_store_bytes = 12, .spill_load_bytes = 20}));
}

TEST(PtxasLog, WithoutNumbersIsNotTakenForNoSpills) {
  EXPECT_TRUE(parse_ptxas_log("").spills());
  EXPECT_EQ(parse_ptxas_log("nothing").registers, -1);
}

#if MOELINK_HAVE_CUDA
TEST(NvrtcLibrary, ThatIsMissingIsNamed) {
  try {
    (void)Nvrtc::open("/nonexistent/libnvrtc.so");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/libnvrtc.so"), std::string::npos) << error.what();
  }
}

TEST(NvrtcLibrary, ThatIsAnotherLibraryIsRefused) { EXPECT_THROW((void)Nvrtc::open("libm.so.6"), Error); }
#endif

}  // namespace
}  // namespace moelink
