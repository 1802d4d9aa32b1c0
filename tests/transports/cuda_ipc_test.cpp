// CUDA IPC on real devices, between processes: a handle cannot be opened in the process that made it.
#include "cuda_processes.hpp"

namespace moelink::test {
namespace {

class IpcProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string obstacle = why_no_cuda_kind(MemoryKind::ipc); !obstacle.empty()) {
      GTEST_SKIP() << obstacle;
    }
  }
  TestDirectory directory_;
};

TEST_F(IpcProcesses, RanksInProcessesShareDeviceMemory) {
  EXPECT_EQ(run_processes(3, MemoryKind::ipc, "exchange", directory_.path()), std::vector<std::string>(3));
  EXPECT_EQ(count_leftovers(directory_.path()).files, 0);
}

TEST_F(IpcProcesses, AKilledPeerHoldsNobodyUp) {
  EXPECT_EQ(run_processes(2, MemoryKind::ipc, "killed", directory_.path()), (std::vector<std::string>{"", "signal 9"}));
  EXPECT_EQ(count_leftovers(directory_.path()).files, 0);
}

}  // namespace
}  // namespace moelink::test
