// jit/kernel_compiler.hpp
#include "jit/kernel_compiler.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "jit/support.hpp"
#include "support/temporary_directory.hpp"

namespace moelink {
namespace {

using namespace test;
namespace fs = std::filesystem;

class KernelCompilerTest : public testing::Test {
 protected:
  void SetUp() override { MOELINK_NEEDS_NVRTC(); }

  [[nodiscard]] std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()));
  }

  TemporaryDirectory directory_;
  DiskCache cache_{directory_.path().string()};
  KernelCompiler compiler_{"sm_90a", fill_sources(), cache_};
  KernelCompiler later_{"sm_90a", fill_sources(), cache_};  ///< what another process would have
};

TEST_F(KernelCompilerTest, CompilesOncePerProcessAndOncePerUser) {
  const auto first = compiler_.get(fill_request());
  EXPECT_EQ(first->origin, KernelOrigin::compiler);
  EXPECT_EQ(compiler_.get(fill_request()), first);
  const auto second = later_.get(fill_request());
  EXPECT_EQ(second->origin, KernelOrigin::disk);
  EXPECT_EQ(second->cubin, first->cubin);
  EXPECT_EQ(second->lowered_name, first->lowered_name);
  EXPECT_EQ(second->usage, first->usage);
  std::printf("cold %.1f ms, cached %.2f ms\n", first->milliseconds, second->milliseconds);
}

TEST_F(KernelCompilerTest, AnotherSpecIsAnotherKernel) {
  EXPECT_NE(compiler_.get(fill_request(64))->lowered_name, compiler_.get(fill_request(128))->lowered_name);
  EXPECT_EQ(num_files(), 2u);
}

TEST_F(KernelCompilerTest, ChangedSourceIsCompiledAgain) {
  (void)compiler_.get(fill_request());
  const std::string text = std::string(kFillSource) + "// changed\n";
  KernelCompiler changed("sm_90a", sources_with(Fill::kHeader, text.c_str()), cache_);
  EXPECT_EQ(changed.get(fill_request())->origin, KernelOrigin::compiler);
}

TEST_F(KernelCompilerTest, CorruptEntryIsRebuilt) {
  (void)compiler_.get(fill_request());
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  }
  EXPECT_EQ(later_.get(fill_request())->origin, KernelOrigin::compiler);
  EXPECT_EQ(KernelCompiler("sm_90a", fill_sources(), cache_).get(fill_request())->origin, KernelOrigin::disk);
}

TEST_F(KernelCompilerTest, WithoutACacheItCompiles) {
  const DiskCache none((std::string()));
  KernelCompiler compiler("sm_90a", fill_sources(), none);
  EXPECT_EQ(compiler.get(fill_request())->origin, KernelOrigin::compiler);
}

TEST_F(KernelCompilerTest, ThreadsThatWantTheSameKernelShareOneCompilation) {
  std::vector<std::shared_ptr<const CompiledKernel>> kernels(4);
  {
    std::vector<std::jthread> threads;
    for (auto& kernel : kernels) {
      threads.emplace_back([&kernel, this] { kernel = compiler_.get(fill_request()); });
    }
  }
  for (const auto& kernel : kernels) {
    EXPECT_EQ(kernel, kernels[0]);
  }
}

TEST_F(KernelCompilerTest, AnswersComeInTheOrderOfTheRequests) {
  std::vector<KernelRequest> requests;
  for (const long bytes : {16, 32, 64, 16, 128}) {
    requests.push_back(fill_request(bytes));
  }
  const auto kernels = compiler_.get_all(requests);
  ASSERT_EQ(kernels.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(kernels[i], compiler_.get(requests[i])) << i;
  }
  EXPECT_EQ(kernels[0], kernels[3]);
  EXPECT_EQ(num_files(), 4u);
}

TEST_F(KernelCompilerTest, OneFailureAmongManyIsThrownAndNotRemembered) {
  KernelRequest bad = fill_request();
  bad.expression = "moelink::entry<moelink::test::NoSuchKernel, 1>";
  const std::vector<KernelRequest> requests = {fill_request(16), bad, fill_request(32)};
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      (void)compiler_.get_all(requests);
      FAIL() << "attempt " << attempt << " compiled";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::compile);
      EXPECT_NE(std::string(error.what()).find("NoSuchKernel"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(num_files(), 2u) << "the good ones are kept, the bad one is not";
}

TEST_F(KernelCompilerTest, ProcessesThatCompileTheSameAtOnceAllSucceed) {
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(fork());
    if (children.back() == 0) {
      const auto kernel = compiler_.get(fill_request());
      _exit(kernel->cubin.starts_with("\x7f"
                                      "ELF")
                ? 0
                : 1);
    }
  }
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(num_files(), 1u);
  EXPECT_EQ(later_.get(fill_request())->origin, KernelOrigin::disk);
}

}  // namespace
}  // namespace moelink
