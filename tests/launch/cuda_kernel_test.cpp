// launch/cuda_kernel.hpp, on a driver that is played by this file: what is passed to it, in which order, and what is
// refused before it is called.
#include "launch/cuda_kernel.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace moelink {
namespace {

#if MOELINK_HAVE_CUDA

template <class Handle>
Handle handle_of(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}
const auto kContext = handle_of<CUcontext>(0x10);
const auto kOtherContext = handle_of<CUcontext>(0x20);
const auto kModule = handle_of<CUmodule>(0x30);
const auto kFunction = handle_of<CUfunction>(0x40);
const auto kStream = handle_of<CUstream>(0x50);
const auto kStreamElsewhere = handle_of<CUstream>(0x60);

struct Launch {
  CUlaunchConfig config{};
  std::vector<CUlaunchAttribute> attributes;
  int argument = 0;
  CUcontext context = nullptr;
};

// What the played driver saw. One test runs at a time.
struct Seen {
  std::vector<std::string> calls;
  std::vector<Launch> launches;
  CUcontext current = kContext;
  int max_dynamic_bytes = 0;
  CUresult launch_result = CUDA_SUCCESS;
};
Seen seen;

CudaDriver played_driver() {
  CudaDriver d;
  d.device_get = [](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; };
  d.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR        ? 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR        ? 3
                                                                                : -1;
    return CUDA_SUCCESS;
  };
  d.ctx_get_current = [](CUcontext* context) { return *context = seen.current, CUDA_SUCCESS; };
  d.ctx_push_current = [](CUcontext context) {
    seen.calls.emplace_back("push");
    return seen.current = context, CUDA_SUCCESS;
  };
  d.ctx_pop_current = [](CUcontext* context) {
    seen.calls.emplace_back("pop");
    return *context = std::exchange(seen.current, nullptr), CUDA_SUCCESS;
  };
  d.module_load_data = [](CUmodule* module, const void* image) {
    seen.calls.emplace_back(std::string("load ") + static_cast<const char*>(image));
    return *module = kModule, CUDA_SUCCESS;
  };
  d.module_get_function = [](CUfunction* function, CUmodule module, const char* name) {
    seen.calls.emplace_back(std::string("function ") + name);
    return *function = kFunction, module == kModule ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  };
  d.func_load = [](CUfunction) {
    seen.calls.emplace_back("func_load");
    return CUDA_SUCCESS;
  };
  d.func_get_attribute = [](int* value, CUfunction_attribute, CUfunction) { return *value = 448, CUDA_SUCCESS; };
  d.func_set_attribute = [](CUfunction, CUfunction_attribute attribute, int value) {
    seen.max_dynamic_bytes = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? value : -1;
    return CUDA_SUCCESS;
  };
  d.stream_get_ctx = [](CUstream stream, CUcontext* context) {
    return *context = stream == kStream ? kContext : kOtherContext, CUDA_SUCCESS;
  };
  d.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    EXPECT_EQ(function, kFunction);
    Launch launch{.config = *config, .attributes = {}, .argument = 0, .context = seen.current};
    launch.attributes.assign(config->attrs, config->attrs + config->numAttrs);
    std::memcpy(&launch.argument, parameters[0], sizeof(int));
    seen.launches.push_back(launch);
    return seen.launch_result;
  };
  d.occupancy_max_active_blocks_per_multiprocessor = [](int* blocks, CUfunction, int threads, std::size_t bytes) {
    return *blocks = threads == 256 && bytes == 1024 ? 8 : 0, CUDA_SUCCESS;
  };
  return d;
}

class CudaKernelTest : public testing::Test {
 protected:
  CudaKernelTest() { seen = {}; }

  [[nodiscard]] CudaKernel load() const {
    return CudaKernel(driver_, Device::cuda(0), kContext,
                      {.name = "Scale", .header = "h", .expression = "e", .threads = 256},
                      {.lowered_name = "_Z5scale", .cubin = "ELF", .usage = {}});
  }

  CudaDriver driver_ = played_driver();
  StreamView stream_ = StreamView::cuda(Device::cuda(0), kStream);
  int argument_ = 42;
};

std::string refusal(const CudaKernel& kernel, const LaunchShape& shape, StreamView stream) {
  const int argument = 0;
  try {
    kernel.launch(shape, &argument, stream);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(seen.launches.empty());
    return error.what();
  }
  return "launched";
}

TEST_F(CudaKernelTest, ModuleAndFunctionAreLoadedAtOnce) {
  const CudaKernel kernel = load();
  EXPECT_EQ(seen.calls, (std::vector<std::string>{"load ELF", "function _Z5scale", "func_load"}));
  EXPECT_EQ(seen.max_dynamic_bytes, 232448 - 448);
}

TEST_F(CudaKernelTest, LaunchPassesShapeStreamAndOneStruct) {
  const CudaKernel kernel = load();
  kernel.launch({.grid = 132, .scratch_bytes = 4096}, &argument_, stream_);
  ASSERT_EQ(seen.launches.size(), 1u);
  const Launch& launch = seen.launches[0];
  EXPECT_EQ(launch.config.gridDimX, 132u);
  EXPECT_EQ(launch.config.gridDimY * launch.config.gridDimZ, 1u);
  EXPECT_EQ(launch.config.blockDimX, 256u);
  EXPECT_EQ(launch.config.blockDimY * launch.config.blockDimZ, 1u);
  EXPECT_EQ(launch.config.sharedMemBytes, 4096u);
  EXPECT_EQ(launch.config.hStream, kStream);
  EXPECT_EQ(launch.argument, 42);
  EXPECT_TRUE(launch.attributes.empty());
}

TEST_F(CudaKernelTest, ProgrammaticLaunchIsAskedForOnlyWhenWanted) {
  const CudaKernel kernel = load();
  kernel.launch({.grid = 1, .programmatic = true}, &argument_, stream_);
  ASSERT_EQ(seen.launches.at(0).attributes.size(), 1u);
  EXPECT_EQ(seen.launches[0].attributes[0].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(seen.launches[0].attributes[0].value.programmaticStreamSerializationAllowed, 1);
}

TEST_F(CudaKernelTest, ThreadWithoutOrWithAnotherContextLaunchesAndKeepsIts) {
  const CudaKernel kernel = load();
  seen.calls.clear();
  kernel.launch({.grid = 1}, &argument_, stream_);
  EXPECT_TRUE(seen.calls.empty()) << "the context was current already";
  for (CUcontext before : {static_cast<CUcontext>(nullptr), kOtherContext}) {
    seen.calls.clear();
    seen.current = before;
    kernel.launch({.grid = 1}, &argument_, stream_);
    EXPECT_EQ(seen.launches.back().context, kContext);
    EXPECT_EQ(seen.calls, (std::vector<std::string>{"push", "pop"}));
  }
}

TEST_F(CudaKernelTest, StreamOfAnotherDeviceIsRefused) {
  const CudaKernel kernel = load();
  const std::string message = refusal(kernel, {.grid = 1}, StreamView::cuda(Device::cuda(1), kStream));
  EXPECT_NE(message.find("Scale runs on cuda:0, but the stream belongs to cuda:1"), std::string::npos) << message;
  EXPECT_NE(refusal(kernel, {.grid = 1}, Stream(Device::host())).find("belongs to host"), std::string::npos);
}

TEST_F(CudaKernelTest, StreamThatClaimsTheWrongDeviceIsRefused) {
  const std::string message = refusal(load(), {.grid = 1}, StreamView::cuda(Device::cuda(0), kStreamElsewhere));
  EXPECT_NE(message.find("created in another"), std::string::npos) << message;
}

TEST_F(CudaKernelTest, LegacyStreamIsRefusedInBothSpellings) {
  const CudaKernel kernel = load();
  for (CUstream legacy : {static_cast<CUstream>(nullptr), CU_STREAM_LEGACY}) {
    EXPECT_NE(refusal(kernel, {.grid = 1}, StreamView::cuda(Device::cuda(0), legacy)).find("legacy"),
              std::string::npos);
  }
}

TEST_F(CudaKernelTest, ShapeTheDeviceCannotRunIsRefusedWithTheLimit) {
  const CudaKernel kernel = load();
  const std::string message = refusal(kernel, {.grid = 1, .scratch_bytes = 232001}, stream_);
  EXPECT_NE(message.find("232001"), std::string::npos) << message;
  EXPECT_NE(message.find("at most 232000 bytes"), std::string::npos) << message;
  EXPECT_NE(refusal(kernel, {.grid = 0}, stream_), "launched");
  EXPECT_NE(refusal(kernel, {.grid = 1, .scratch_bytes = -1}, stream_), "launched");
  kernel.launch({.grid = 1, .scratch_bytes = 232000}, &argument_, stream_);
}

TEST_F(CudaKernelTest, FailedLaunchNamesTheKernel) {
  const CudaKernel kernel = load();
  seen.launch_result = CUDA_ERROR_INVALID_VALUE;
  try {
    kernel.launch({.grid = 1}, &argument_, stream_);
    FAIL() << "launched";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cuda);
    EXPECT_NE(std::string(error.what()).find("cuLaunchKernelEx of Scale"), std::string::npos) << error.what();
  }
}

TEST_F(CudaKernelTest, ResidencyIsAskedForTheBlockSizeAndScratchOfTheLaunch) {
  EXPECT_EQ(load().max_blocks_per_sm(1024), 8);
}

TEST_F(CudaKernelTest, ArchitectureComesFromTheDevice) {
  EXPECT_EQ(architecture_of(driver_, Device::cuda(0)), "sm_103a");
}

#else

TEST(CudaKernel, Exists) { GTEST_SKIP() << "built without the CUDA toolkit"; }

#endif

}  // namespace
}  // namespace moelink
