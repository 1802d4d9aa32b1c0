// From a kernel descriptor (kernels/exec/spec.cuh) to something that can be launched, on either backend.
//
//   KernelLoader loader(device);
//   Kernel<LocalDecode> decode = loader.add<LocalDecode>("moelink/device/moe/local_decode.cuh", spec);
//   loader.load();                                  // compiles in parallel (or finds in the cache), loads every function
//   decode.launch({.grid = 132, .scratch_bytes = 4096}, args, stream);
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "moelink/device.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "moelink/device/exec/spec.cuh"
#include "moelink/stream.hpp"

namespace moelink {

/// The shape of one launch. Threads per block come from the spec.
struct LaunchShape {
  int grid = 1;
  int scratch_bytes = 0;       ///< shared memory per block
  bool programmatic = false;   ///< CUDA: programmatic dependent launch on the work before it in the stream
};

/// A loaded function, its type forgotten. Owned by the loader's cache and by every Kernel that refers to it.
class LoadedKernel {
 public:
  using HostFunction = void (*)(const HostExec& ex, const void* spec, const void* args);

  virtual ~LoadedKernel() = default;
  virtual void launch(const LaunchShape& shape, const void* args, std::size_t args_bytes, StreamView stream) const = 0;
  /// Most blocks of this kernel that one SM holds at once with this much scratch (host: 1).
  [[nodiscard]] virtual int max_blocks_per_sm(int scratch_bytes) const = 0;
};

/// What has to be compiled: which header, and the C++ name of the instantiation.
struct KernelRequest {
  std::string header;           ///< "moelink/device/moe/local_decode.cuh"
  std::string name_expression;  ///< "moelink::entry<moelink::LocalDecode, moelink::LocalDispatchSpec{...}>"
  int threads = 0;
  friend bool operator==(const KernelRequest&, const KernelRequest&) = default;
};

/// A launchable kernel, typed by its descriptor.
template <class K>
class Kernel {
 public:
  using Spec = typename K::Spec;
  using Args = typename K::Args;

  [[nodiscard]] const Spec& spec() const noexcept { return *spec_; }
  void launch(const LaunchShape& shape, const Args& args, StreamView stream) const {
    static_assert(std::is_trivially_copyable_v<Args>);
    loaded_->launch(shape, &args, sizeof(Args), stream);
  }
  [[nodiscard]] int max_blocks_per_sm(int scratch_bytes) const { return loaded_->max_blocks_per_sm(scratch_bytes); }

 private:
  friend class KernelLoader;
  std::shared_ptr<const Spec> spec_;
  std::shared_ptr<const LoadedKernel> loaded_;
};

}  // namespace moelink
