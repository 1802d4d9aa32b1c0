// moelink/warm_up.hpp
#include "moelink/warm_up.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "exchange/local_kernels.hpp"
#include "jit/kernel_compiler.hpp"
#include "jit/support.hpp"
#include "support/temporary_directory.hpp"

namespace moelink {
namespace {

// The environment is read once, at first use: the cache of this program is a directory of its own.
const test::TemporaryDirectory directory;
const int is_set = setenv("MOELINK_CACHE_DIR", directory.path().c_str(), 1);

ExchangeConfig config() { return {.num_experts = 8, .top_k = 2, .hidden = 64, .max_tokens = 4096}; }

std::vector<KernelRequest> requests_of_an_exchange() {
  KernelLoader loader(Device::cuda(0));
  const LocalKernels kernels(loader, LocalDevice{.is_host = false, .num_sms = 132, .max_scratch_bytes = 227 << 10},
                             check_config(config(), Communicator::single(Device::host())), config());
  return loader.requests();
}

std::string message_of(const ExchangeConfig& bad, ErrorCode code) {
  try {
    (void)warm_up(bad, "sm_90a");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(WarmUp, WhatAnExchangeLoadsIsThenInTheCache) {
  MOELINK_NEEDS_NVRTC();
  const std::vector<KernelReport> reports = warm_up(config(), "sm_90a");
  const std::vector<KernelRequest> requests = requests_of_an_exchange();
  ASSERT_EQ(reports.size(), requests.size());
  const DiskCache cache(directory.path().string());
  KernelCompiler another_process("sm_90a", embedded_sources(), cache);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(reports[i].name, requests[i].name);
    EXPECT_EQ(reports[i].spilled_bytes, 0);
    EXPECT_GT(reports[i].registers, 0);
    EXPECT_EQ(another_process.get(requests[i])->origin, KernelOrigin::disk) << requests[i].expression;
  }
}

std::set<std::string> names_of(const std::vector<KernelReport>& reports) {
  std::set<std::string> names;
  for (const KernelReport& report : reports) {
    names.insert(report.name);
    EXPECT_EQ(report.spilled_bytes, 0) << report.name;
  }
  return names;
}

TEST(WarmUp, RanksGetTheKernelsOfTheirMode) {
  MOELINK_NEEDS_NVRTC();
  ExchangeConfig replicated = config();
  replicated.replicated_inputs = true;
  replicated.max_tokens = 8192;  // more than are pushed
  const auto tensor_parallel = names_of(warm_up(replicated, "sm_90a", {.num_ranks = 2}));
  EXPECT_TRUE(tensor_parallel.contains("TensorParallelPush"));
  EXPECT_TRUE(tensor_parallel.contains("TensorParallelStaged"));
  EXPECT_TRUE(tensor_parallel.contains("LocalDecode"));

  const std::set<std::string> of_rows = {"NvlinkDecode", "NvlinkPrefill", "NvlinkCombine"};
  EXPECT_EQ(names_of(warm_up(config(), "sm_90a", {.num_ranks = 2})), of_rows);
  // The same names, but kernels that know remotes.
  const std::vector<KernelReport> over_nodes = warm_up(config(), "sm_90a", {.num_ranks = 2, .ranks_per_node = 1});
  EXPECT_EQ(names_of(over_nodes), of_rows);
  for (const KernelReport& report : over_nodes) EXPECT_EQ(report.origin, "compiled") << report.name;
}

TEST(WarmUp, RanksWithDifferentNumbersOfExpertsAreAllServed) {
  MOELINK_NEEDS_NVRTC();
  ExchangeConfig replicated = config();
  replicated.replicated_inputs = true;
  replicated.num_experts = 3;
  const std::vector<KernelReport> reports = warm_up(replicated, "sm_90a", {.num_ranks = 2});
  EXPECT_EQ(std::ranges::count(reports, std::string("LocalDecode"), &KernelReport::name), 2);
}

TEST(WarmUp, ConfigurationThatExchangeWouldRefuseIsRefused) {
  ExchangeConfig bad = config();
  bad.top_k = 33;
  EXPECT_NE(message_of(bad, ErrorCode::invalid_argument).find("33"), std::string::npos);
}

// What it compiles must outlive it: without a cache it would have done nothing, and say that it did. In a process of
// its own each, as the environment is read once.
void warm_up_with(const char* variable, const char* value, const char* expected) {
  setenv(variable, value, 1);
  const bool ok = message_of(config(), ErrorCode::system).find(expected) != std::string::npos;
  _exit(ok ? 0 : 1);
}

TEST(WarmUp, WithoutACacheIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(warm_up_with("MOELINK_CACHE", "0", "MOELINK_CACHE=0"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(warm_up_with("MOELINK_CACHE_DIR", "/proc/nowhere", "/proc/nowhere"), testing::ExitedWithCode(0), "");
}

TEST(WarmUp, HostHasNoArchitecture) { EXPECT_THROW((void)kernel_architecture(Device::host()), Error); }

}  // namespace
}  // namespace moelink
