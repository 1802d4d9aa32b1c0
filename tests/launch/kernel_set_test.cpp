// moelink/kernel.hpp: kernels of users run on both backends and are compiled from their own headers.
#include "moelink/kernel.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <vector>

#include "comm/expect_error.hpp"
#include "launch/user_kernel.cuh"
#include "moelink/buffer.hpp"
#include "support/nvrtc.hpp"

namespace moelink::test {
namespace {

using moelink::testing::expect_error;

std::vector<KernelHeader> headers() {
  std::ifstream file(MOELINK_USER_KERNEL);
  return {{UserAdd::kHeader, {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}}};
}

void expect_adds(Device device) {
  KernelSet kernels(device, headers());
  const auto add_seven = kernels.add<UserAdd>({.summand = 7, .threads = device.is_host() ? 1 : 128});
  kernels.load();
  const Stream stream(device);
  std::vector<std::int32_t> values(1000);
  std::iota(values.begin(), values.end(), 0);
  const Buffer buffer(device, values.size() * sizeof(values[0]));
  copy_bytes(buffer.data(), values.data(), buffer.size_bytes(), stream);
  add_seven.launch({.grid = 3}, {.values = buffer.as<std::int32_t>(), .count = 1000}, stream);
  copy_bytes(values.data(), buffer.data(), buffer.size_bytes(), stream);
  stream.synchronize();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(values[static_cast<std::size_t>(i)], i + 7);
  }
}

TEST(KernelSet, RunsOnTheHost) { expect_adds(Device::host()); }

TEST(KernelSet, RunsOnAGpu) {
  if (Device::cuda_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  MOELINK_NEEDS_NVRTC();
  expect_adds(Device::cuda(0));
}

TEST(KernelSet, CompilesWithoutADevice) {
  MOELINK_NEEDS_NVRTC();
  KernelSet kernels(Device::cuda(0), headers());
  (void)kernels.add<UserAdd>({.summand = 7, .threads = 128});
  const auto reports = kernels.warm_up("sm_90a");
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].name, "UserAdd");
  EXPECT_EQ(reports[0].spilled_bytes, 0);
}

TEST(KernelSet, ErrorsOfTheCompilerReachTheUser) {
  MOELINK_NEEDS_NVRTC();
  KernelSet kernels(Device::cuda(0), {{"user/user_kernel.cuh", "not C++"}});
  (void)kernels.add<UserAdd>({.summand = 7, .threads = 128});
  expect_error(ErrorCode::compile, {"UserAdd", "user_kernel.cuh"}, [&] { (void)kernels.warm_up("sm_90a"); });
}

TEST(KernelSet, LaunchBeforeLoadIsAnError) {
  KernelSet kernels(Device::host(), headers());
  const auto add = kernels.add<UserAdd>({.summand = 1, .threads = 1});
  const Stream stream(Device::host());
  expect_error(ErrorCode::out_of_order, {"UserAdd", "load"}, [&] { add.launch({}, {}, stream); });
  expect_error(ErrorCode::out_of_order, {"UserAdd"}, [&] { (void)add.max_blocks_per_sm(0); });
}

TEST(KernelSet, TwoHeadersOfOneNameAreRefused) {
  expect_error(ErrorCode::invalid_argument, {"moelink/protocol/types.hpp"}, [] {
    const KernelSet kernels(Device::host(), {{"moelink/protocol/types.hpp", ""}});
  });
}

}  // namespace
}  // namespace moelink::test
