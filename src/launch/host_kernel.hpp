// A kernel on the host: its descriptor's run, called for each block by the stream's team of threads.
#pragma once

#include "launch/kernel.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "moelink/device/exec/spec.cuh"
#include "runtime/host_queue.hpp"

namespace moelink {

/// The host queue behind a stream; throws invalid_argument, naming the kernel, if it is a stream of a GPU.
[[nodiscard]] HostQueue& host_queue_of(StreamView stream, const char* kernel_name);

template <class K>
class HostKernel final : public LoadedKernel {
 public:
  using Spec = typename K::Spec;
  using Args = typename K::Args;

  explicit HostKernel(const Spec& spec) : spec_(spec) {}

  void launch(const LaunchShape& shape, const void* args, StreamView stream) const override {
    HostQueue& queue = host_queue_of(stream, K::kName);
    // Spec and arguments travel inside the task: neither this object nor the caller's struct need outlive the call.
    queue.launch_blocks(shape.grid, static_cast<std::size_t>(shape.scratch_bytes),
                        [spec = spec_, copy = *static_cast<const Args*>(args)](const HostExec& ex) {
                          K::run(ex, Runtime<Spec>(spec), copy);
                        });
  }

  [[nodiscard]] int max_blocks_per_sm(int) const override { return 1; }

 private:
  Spec spec_;
};

}  // namespace moelink
