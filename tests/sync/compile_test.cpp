// The wrappers through NVRTC for every architecture, without a device: each is the instruction that its name says.
#include <gtest/gtest.h>

#include <string>

#include "kernels/barrier_exercise.cuh"
#include "kernels/bulk_round_trip.cuh"
#include "kernels/convert_all.cuh"
#include "kernels/litmus.cuh"
#include "kernels/pump_relay.cuh"
#include "support/nvrtc.hpp"
#include "support/test_kernels.hpp"

namespace moelink::test {
namespace {

class CompileFor : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { MOELINK_NEEDS_NVRTC(); }

  template <class K>
  void expect_no_spills(const typename K::Spec& spec) {
    const CompiledKernel compiled = compile(test_kernel_sources(), make_request<K>(spec), GetParam());
    EXPECT_FALSE(compiled.usage.spills()) << K::kName;
    EXPECT_GT(compiled.usage.registers, 0) << K::kName;
  }
};
INSTANTIATE_TEST_SUITE_P(Architectures, CompileFor, testing::Values("sm_90a", "sm_100a"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(CompileFor, TheSyncKernelsCompileWithoutSpills) {
  expect_no_spills<BarrierExercise>({.threads = 1024});
  expect_no_spills<ConvertAll>({.threads = 128});
  expect_no_spills<BulkRoundTrip>({.threads = 256, .words = 2048});
  expect_no_spills<PumpRelay>({.row_bytes = 14336, .scale_bytes = 448, .top_k = 4, .threads = 256});
  expect_no_spills<Litmus>({.threads = 32, .which = LitmusCase::store_buffering_sys});
}

TEST_P(CompileFor, TheBarrierArrivesByOneAcquireReleaseAddAndPollsByAcquireLoads) {
  const std::string ptx =
      compile_to_ptx(test_kernel_sources(), make_request<BarrierExercise>({.threads = 128}), GetParam());
  EXPECT_NE(ptx.find("atom.acq_rel.gpu.global.add.u64"), std::string::npos);
  EXPECT_NE(ptx.find("ld.acquire.gpu.global.b64"), std::string::npos);
  EXPECT_EQ(ptx.find("fence.sc"), std::string::npos) << "a full fence costs as much as the barrier";
  EXPECT_EQ(ptx.find("membar"), std::string::npos);
}

}  // namespace
}  // namespace moelink::test
