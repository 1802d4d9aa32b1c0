// kernels/put under NVRTC, in a kernel as a mode would write it: pack, hand over, wait.
#include <gtest/gtest.h>

#include "jit/kernel_compiler.hpp"
#include "jit/support.hpp"
#include "support/temporary_directory.hpp"

namespace moelink {
namespace {

struct PutSpec {
  int threads = 0;
  constexpr auto fields(auto&& visit) const { return visit(threads); }
};
struct PackAndPut {
  static constexpr const char* kName = "PackAndPut";
  static constexpr const char* kHeader = "moelink/test/pack_and_put.cuh";
  using Spec = PutSpec;
};

constexpr const char* kSource = R"(
#include "moelink/device/put/hand_over.cuh"
namespace moelink {
struct PutSpec { int threads = 0; };
struct PutArgs {
  PutChannelView channel;
  FaultContext context;
  unsigned char* staging;
  u64* device_flags;
  u64 epoch;
};
struct PackAndPut {
  using Spec = PutSpec;
  using Args = PutArgs;
  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S, const Args& args) {
    bool ok = true;
    if (ex.thread() == 0) ok = wait_until_sent(args.channel, args.context, 0, args.epoch);
    if (ex.sync_block_or(!ok)) return;
    args.staging[ex.thread()] = static_cast<unsigned char>(ex.thread());
    if (!hand_over_block(ex, args.channel, args.context, {.peer = 1, .epoch = args.epoch, .size_bytes = 64})) return;
    if (ex.warp() == 0) {
      relay_arrivals(ex, args.channel, args.context, FaultPhase::dispatch_receive, 1,
                     args.channel.arrival_flag(0, 1, 0), args.device_flags, 4, args.epoch);
    }
    if (ex.thread() == 0) {
      wait_for_chunk(args.channel, args.context, FaultPhase::dispatch_receive, 0, 1, 5, args.epoch);
    }
  }
};
}
)";

class PutKernels : public testing::TestWithParam<const char*> {};

TEST_P(PutKernels, CompileForGpusWithoutSpills) {
  MOELINK_NEEDS_NVRTC();
  const test::TemporaryDirectory directory;
  const DiskCache cache(directory.path().string());
  KernelCompiler compiler(GetParam(), test::sources_with(PackAndPut::kHeader, kSource), cache);
  KernelRequest request = make_request<PackAndPut>({.threads = 128});
  request.expression = "moelink::entry<moelink::PackAndPut, moelink::PutSpec{128}>";
  const auto kernel = compiler.get(request);
  EXPECT_FALSE(kernel->usage.spills());
  EXPECT_FALSE(kernel->cubin.empty());
}

INSTANTIATE_TEST_SUITE_P(Architectures, PutKernels, testing::Values("sm_90a", "sm_100a"),
                         [](const auto& value) { return std::string(value.param); });

}  // namespace
}  // namespace moelink
