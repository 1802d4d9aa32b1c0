// launch/kernel_loader.hpp on the host
#include "launch/kernel_loader.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"

namespace moelink {
namespace test {

struct ScaleSpec {
  int threads = 0;
  int factor = 0;
  constexpr auto fields(auto&& visit) const { return visit(threads, factor); }
};
struct ScaleArgs {
  int* values;
  int num_values;
};
/// Multiplies by the spec's factor; every block passes its values through its scratch.
struct Scale {
  static constexpr const char* kName = "Scale";
  static constexpr const char* kHeader = "moelink/test/scale.cuh";
  using Spec = ScaleSpec;
  using Args = ScaleArgs;
  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    int* scratch = static_cast<int*>(ex.scratch());
    for (int i = ex.block(); i < args.num_values; i += ex.num_blocks()) {
      *scratch = args.values[i];
      args.values[i] = *scratch * spec().factor;
    }
  }
};

}  // namespace test

namespace {

using test::Scale;

constexpr LaunchShape kShape = {.grid = 3, .scratch_bytes = 128};

class KernelLoaderTest : public testing::Test {
 protected:
  Stream stream_{Device::host(), {.num_threads = 2}};
  KernelLoader loader_{Device::host()};
  std::vector<int> values_ = {1, 2, 3, 4, 5};
  test::ScaleArgs args_{values_.data(), 5};
};

ErrorCode code_of(const std::function<void()>& body, std::string* message = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (message != nullptr) {
      *message = error.what();
    }
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::system;
}

TEST_F(KernelLoaderTest, RunsEveryBlockWithItsSpecAndArguments) {
  const Kernel<Scale> twice = loader_.add<Scale>({.threads = 32, .factor = 2});
  const Kernel<Scale> thrice = loader_.add<Scale>({.threads = 32, .factor = 3});
  loader_.load();
  twice.launch(kShape, args_, stream_);
  thrice.launch(kShape, args_, stream_);
  stream_.synchronize();
  EXPECT_EQ(values_, (std::vector{6, 12, 18, 24, 30}));
  EXPECT_EQ(thrice.spec().factor, 3);
}

TEST_F(KernelLoaderTest, EqualSpecsAreOneKernel) {
  (void)loader_.add<Scale>({.threads = 32, .factor = 2});
  (void)loader_.add<Scale>({.threads = 32, .factor = 3});
  (void)loader_.add<Scale>({.threads = 32, .factor = 2});
  EXPECT_EQ(loader_.requests().size(), 2u);
}

TEST_F(KernelLoaderTest, LaunchBeforeLoadIsAnErrorThatNamesTheKernel) {
  const Kernel<Scale> kernel = loader_.add<Scale>({.threads = 32, .factor = 2});
  std::string message;
  EXPECT_EQ(code_of([&] { kernel.launch(kShape, args_, stream_); }, &message), ErrorCode::out_of_order);
  EXPECT_NE(message.find("Scale"), std::string::npos);
  EXPECT_EQ(code_of([&] { Kernel<Scale>().launch(kShape, args_, stream_); }), ErrorCode::out_of_order);
}

TEST_F(KernelLoaderTest, KernelsAddedAfterALoadAreLoadedByTheNext) {
  (void)loader_.add<Scale>({.threads = 32, .factor = 2});
  loader_.load();
  const Kernel<Scale> later = loader_.add<Scale>({.threads = 32, .factor = 10});
  loader_.load();
  later.launch(kShape, args_, stream_);
  stream_.synchronize();
  EXPECT_EQ(values_[4], 50);
}

TEST_F(KernelLoaderTest, ArgumentsAndKernelMayGoRightAfterTheCall) {
  {
    KernelLoader loader(Device::host());
    const Kernel<Scale> kernel = loader.add<Scale>({.threads = 32, .factor = 7});
    loader.load();
    test::ScaleArgs args = args_;
    kernel.launch(kShape, args, stream_);
    args = {};
  }
  stream_.synchronize();
  EXPECT_EQ(values_[0], 7);
}

TEST_F(KernelLoaderTest, StreamOfAGpuIsRefusedBeforeAnythingIsEnqueued) {
  const Kernel<Scale> kernel = loader_.add<Scale>({.threads = 32, .factor = 2});
  loader_.load();
  std::string message;
  const StreamView gpu = StreamView::cuda(Device::cuda(1), &message);
  EXPECT_EQ(code_of([&] { kernel.launch(kShape, args_, gpu); }, &message), ErrorCode::invalid_argument);
  EXPECT_NE(message.find("cuda:1"), std::string::npos) << message;
}

TEST_F(KernelLoaderTest, GridOfNoBlocksIsRefused) {
  const Kernel<Scale> kernel = loader_.add<Scale>({.threads = 32, .factor = 2});
  loader_.load();
  EXPECT_EQ(code_of([&] { kernel.launch({.grid = 0}, args_, stream_); }), ErrorCode::invalid_argument);
}

TEST_F(KernelLoaderTest, LaunchingAllocatesNothingOnceWarm) {
  const Kernel<Scale> kernel = loader_.add<Scale>({.threads = 32, .factor = 1});
  loader_.load();
  // The queue grows until it has been as long as it gets: tasks enqueued while the worker is held back.
  constexpr int kLaunches = 16;
  std::atomic<bool> release = false;
  stream_.view().host_queue()->enqueue([&] {
    while (!release) {
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < kLaunches; ++i) {
    kernel.launch(kShape, args_, stream_);
  }
  release = true;
  stream_.synchronize();
  const long before = test::num_allocations();
  for (int i = 0; i < kLaunches; ++i) {
    kernel.launch(kShape, args_, stream_);
  }
  EXPECT_EQ(test::num_allocations() - before, 0);
  stream_.synchronize();
}

TEST_F(KernelLoaderTest, HostKernelsNeedNoCompiler) {
  (void)loader_.add<Scale>({.threads = 32, .factor = 2});
  loader_.load();
  EXPECT_EQ(loader_.describe(), "Scale\n");
}

TEST(KernelLoader, WhatAGpuWouldNeedIsKnownWithoutOne) {
  KernelLoader loader(Device::cuda(0));
  (void)loader.add<Scale>({.threads = 32, .factor = 2});
  ASSERT_EQ(loader.requests().size(), 1u);
  EXPECT_EQ(loader.requests()[0].expression, "moelink::entry<moelink::test::Scale, moelink::test::ScaleSpec{32, 2}>");
}

TEST(KernelLoader, GpuThatIsNotThereIsAnError) {
  KernelLoader loader(Device::cuda(Device::cuda_count()));
  (void)loader.add<Scale>({.threads = 32, .factor = 2});
  EXPECT_THROW(loader.load(), Error);
}

}  // namespace
}  // namespace moelink
