// A kernel that can be launched on either backend. KernelLoader (kernel_loader.hpp) makes them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "jit/compiled_kernel.hpp"
#include "jit/kernel_request.hpp"
#include "moelink/error.hpp"
#include "moelink/kernel.hpp"
#include "moelink/stream.hpp"

namespace moelink {

/// A loaded function, its type forgotten. Never moves, and outlives every launch.
class LoadedKernel {
 public:
  LoadedKernel() = default;
  virtual ~LoadedKernel() = default;
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  /// Enqueues; copies `args`. Legal while the stream is captured. Allocates nothing once the stream has been as busy as
  /// it gets. Throws invalid_argument for a stream that is not one of the kernel's device, or is CUDA's legacy stream.
  virtual void launch(const LaunchShape& shape, const void* args, StreamView stream) const = 0;

  /// Most blocks that one SM holds at once with this much scratch. Host: 1, and an SM is a thread of the stream.
  [[nodiscard]] virtual int max_blocks_per_sm(int scratch_bytes) const = 0;
};

/// What the loader knows of one kernel: shared by every Kernel that was added with the same spec.
struct KernelSlot {
  KernelRequest request;
  std::shared_ptr<const LoadedKernel> on_host = nullptr;  ///< on the host: what load() makes available; null on a GPU
  std::shared_ptr<const CompiledKernel> compiled =
      nullptr;                                           ///< on a GPU, after load(): what was loaded; null on the host
  std::shared_ptr<const LoadedKernel> loaded = nullptr;  ///< null until load()
};

/// A launchable kernel, typed by its descriptor (kernels/exec/spec.cuh). Cheap to copy; empty until assigned.
template <class K>
class Kernel {
 public:
  using Spec = typename K::Spec;
  using Args = typename K::Args;
  static_assert(std::is_trivially_copyable_v<Args>, "kernel arguments are copied as bytes");

  Kernel() = default;

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }

  void launch(const LaunchShape& shape, const Args& args, StreamView stream) const {
    loaded().launch(shape, &args, stream);
  }
  [[nodiscard]] int max_blocks_per_sm(int scratch_bytes) const { return loaded().max_blocks_per_sm(scratch_bytes); }

 private:
  friend class KernelLoader;
  Kernel(const Spec& spec, std::shared_ptr<const KernelSlot> slot) : spec_(spec), slot_(std::move(slot)) {}

  [[nodiscard]] const LoadedKernel& loaded() const {
    if (slot_ == nullptr || slot_->loaded == nullptr) {
      throw Error(ErrorCode::out_of_order, std::string(K::kName) + " is used before KernelLoader::load has loaded it");
    }
    return *slot_->loaded;
  }

  Spec spec_{};
  std::shared_ptr<const KernelSlot> slot_;
};

}  // namespace moelink
