// Virtual memory shared by descriptors on real devices: between contexts of one process, and between processes.
#include "cuda_processes.hpp"

namespace moelink::test {
namespace {

INSTANTIATE_TEST_SUITE_P(CudaVmm, MemoryConformance, ::testing::Values(cuda_case(MemoryKind::vmm)), case_name);

class VmmProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string obstacle = why_no_cuda_kind(MemoryKind::vmm); !obstacle.empty()) {
      GTEST_SKIP() << obstacle;
    }
  }
  TestDirectory directory_;
};

TEST_F(VmmProcesses, RanksInProcessesShareDeviceMemory) {
  EXPECT_EQ(run_processes(3, MemoryKind::vmm, "exchange", directory_.path()), std::vector<std::string>(3));
  EXPECT_EQ(count_leftovers(directory_.path()).files, 0);
}

TEST_F(VmmProcesses, MemoryOutlivesAnOwnerWhoLeavesEarly) {
  EXPECT_EQ(run_processes(2, MemoryKind::vmm, "outlive", directory_.path()), std::vector<std::string>(2));
}

TEST_F(VmmProcesses, AKilledPeerHoldsNobodyUp) {
  EXPECT_EQ(run_processes(2, MemoryKind::vmm, "killed", directory_.path()), (std::vector<std::string>{"", "signal 9"}));
  EXPECT_EQ(count_leftovers(directory_.path()).files, 0);
}

}  // namespace
}  // namespace moelink::test
