// Kernels of your own: written once, compiled at run time for a GPU, run by the threads of a stream on the host.
//
//   struct Scale {                                                  // kernels/scale.cuh, on top of moelink/device/...
//     static constexpr const char* kName = "Scale";
//     static constexpr const char* kHeader = "mine/scale.cuh";      // how #include finds it
//     using Spec = ScaleSpec;                                       // struct ScaleSpec { i32 columns; i32 threads; fields() }
//     using Args = ScaleArgs;                                       // trivially copyable
//     template <class Exec, class S>
//     MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args);
//   };
//
//   KernelSet kernels(device, {{"mine/scale.cuh", text_of_scale_cuh}});
//   UserKernel<Scale> scale = kernels.add<Scale>({.columns = 4096, .threads = 256});
//   kernels.load();                                                 // compiles in parallel, or finds in the cache
//   scale.launch({.grid = 132}, args, stream);
//
// moelink/device/exec/spec.cuh explains descriptors and specs. They must be written in a namespace, not local to a
// function: their qualified names are what the compiler for the GPU is told.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "moelink/device.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "moelink/device/exec/spec.cuh"
#include "moelink/export.hpp"
#include "moelink/kernel_expression.hpp"
#include "moelink/stream.hpp"
#include "moelink/warm_up.hpp"

namespace moelink {

/// The shape of one launch. Threads per block come from the spec.
struct LaunchShape {
  int grid = 1;               ///< blocks
  int scratch_bytes = 0;      ///< shared memory per block
  bool programmatic = false;  ///< CUDA: may start before the work ahead of it in the stream has ended; the kernel waits
                              ///< for that work itself (programmatic dependent launch). No kernel of the
                              ///< library does yet: phase words, block epochs and the reuse of staging memory rest
                              ///< on stream order
};

/// A header that kernels are compiled from: the name that #include uses, and its text.
struct KernelHeader {
  std::string name;
  std::string text;
};

class LoadedUserKernel;  // src/launch

namespace detail {

/// What the library knows of a user's kernel without its types.
struct UserKernelRequest {
  std::string name;
  std::string header;
  std::string expression;
  int threads = 0;
};

/// A launch on the host: run(executor, call) is called for each block, with a copy of the bytes at `call`.
struct HostLaunch {
  void (*run)(const HostExec& ex, const void* call) = nullptr;
  const void* call = nullptr;
  std::size_t call_bytes = 0;
};

MOELINK_EXPORT void launch_user_kernel(const LoadedUserKernel& kernel, const LaunchShape& shape, const void* args,
                                       const HostLaunch& on_host, StreamView stream);
MOELINK_EXPORT int user_kernel_blocks_per_sm(const LoadedUserKernel& kernel, int scratch_bytes);

}  // namespace detail

/// A launchable kernel, typed by its descriptor. Cheap to copy; empty until assigned. It outlives its KernelSet.
template <class K>
class UserKernel {
 public:
  using Spec = typename K::Spec;
  using Args = typename K::Args;
  static_assert(std::is_trivially_copyable_v<Args> && std::is_trivially_copyable_v<Spec>,
                "spec and arguments are copied as bytes");

  UserKernel() = default;

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }

  /// Enqueues; copies `args`. Legal while the stream is captured. Throws out_of_order before KernelSet::load(),
  /// invalid_argument for a stream of another device and for shapes that the device cannot launch. On the host a block
  /// is one thread of the stream, and up to as many blocks as it has threads run at the same time.
  void launch(const LaunchShape& shape, const Args& args, StreamView stream) const {
    const Call call{spec_, args};
    static_assert(sizeof(Call) <= kMaxCallBytes, "spec and arguments of a kernel are at most 768 bytes");
    detail::launch_user_kernel(*kernel_, shape, &args, {.run = &run_on_host, .call = &call, .call_bytes = sizeof(Call)},
                               stream);
  }

  /// Most blocks that one SM holds at once with this much scratch. Host: 1, and an SM is a thread of the stream.
  [[nodiscard]] int max_blocks_per_sm(int scratch_bytes) const {
    return detail::user_kernel_blocks_per_sm(*kernel_, scratch_bytes);
  }

 private:
  friend class KernelSet;
  static constexpr std::size_t kMaxCallBytes = 768;
  struct Call {
    Spec spec;
    Args args;
  };
  static void run_on_host(const HostExec& ex, const void* bytes) {
    const auto& call = *static_cast<const Call*>(bytes);
    K::run(ex, Runtime<Spec>(call.spec), call.args);
  }

  UserKernel(const Spec& spec, std::shared_ptr<const LoadedUserKernel> kernel)
      : spec_(spec), kernel_(std::move(kernel)) {}

  Spec spec_{};
  std::shared_ptr<const LoadedUserKernel> kernel_;
};

/// The kernels that a part of a program needs on one device. They are compiled against the library's own headers
/// (moelink/device/..., moelink/protocol/...) and those given here, and nothing else; with the options and the cache of
/// the library's kernels. One thread at a time.
class MOELINK_EXPORT KernelSet {
 public:
  KernelSet(Device device, std::vector<KernelHeader> headers);
  ~KernelSet();
  KernelSet(KernelSet&&) noexcept;
  KernelSet& operator=(KernelSet&&) noexcept;

  /// Asks for a kernel; touches no device.
  template <class K>
  UserKernel<K> add(const typename K::Spec& spec) {
    static_assert(type_name<K>().ends_with(std::string_view(K::kName)), "kName is the name of the descriptor");
    return UserKernel<K>(
        spec, add(detail::UserKernelRequest{
                  .name = K::kName,
                  .header = K::kHeader,
                  .expression = "moelink::entry<" + std::string(type_name<K>()) + ", " + to_expression(spec) + ">",
                  .threads = static_cast<int>(spec.threads)}));
  }

  /// Compiles what no cache has, in parallel, and loads every function; on the host there is nothing to do. Nothing is
  /// compiled or loaded later. May be called again after further add()s. Throws ErrorCode::compile with the compiler's
  /// log, unsupported or cuda.
  void load();

  /// Compiles every kernel that was asked for, for an architecture ("sm_90a"), into the user's cache. Needs no device.
  [[nodiscard]] std::vector<KernelReport> warm_up(const std::string& architecture) const;

 private:
  struct Impl;
  std::shared_ptr<const LoadedUserKernel> add(const detail::UserKernelRequest& request);

  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink
