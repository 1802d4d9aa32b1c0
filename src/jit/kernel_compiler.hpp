// Kernels for one architecture, compiled at most once per process and, with the disk cache, once per user.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "jit/compile.hpp"
#include "jit/disk_cache.hpp"

namespace moelink {

/// Thread-safe. Threads that want the same kernel at the same time wait for one compilation.
class KernelCompiler {
 public:
  KernelCompiler(std::string architecture, SourceSet sources, const DiskCache& cache);

  /// The compiler of these sources with the user's cache; one per architecture and hash, lives as long as the process,
  /// as the sources must.
  [[nodiscard]] static KernelCompiler& shared(const std::string& architecture,
                                              const SourceSet& sources = embedded_sources());

  [[nodiscard]] const std::string& architecture() const { return architecture_; }

  /// From memory, from disk, or compiled now. Throws as compile(); a failed compilation is not remembered.
  [[nodiscard]] std::shared_ptr<const CompiledKernel> get(const KernelRequest& request);

  /// get() for each request, on as many threads as MOELINK_COMPILE_THREADS or the cores allow. In the order of the
  /// requests. Throws what the first failing request threw, after all threads have ended.
  [[nodiscard]] std::vector<std::shared_ptr<const CompiledKernel>> get_all(std::span<const KernelRequest> requests);

 private:
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const CompiledKernel> kernel;
  };

  CompiledKernel make(const KernelRequest& request) const;
  Slot& slot_of(const KernelRequest& request);

  std::string architecture_;
  SourceSet sources_;
  const DiskCache& cache_;
  std::mutex mutex_;
  std::map<std::string, Slot> slots_;  ///< by header and expression; nodes never move
};

}  // namespace moelink
