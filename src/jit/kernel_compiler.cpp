#include "jit/kernel_compiler.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <semaphore>
#include <thread>
#include <utility>

#include "base/environment.hpp"

namespace moelink {
namespace {

std::ptrdiff_t compile_threads() {
  const int wanted = Environment::get().compile_threads;
  return wanted > 0 ? wanted : std::max<std::ptrdiff_t>(1, std::thread::hardware_concurrency());
}

// All compilers of the process together: eight ranks as threads must not run eight times as many compilations as there
// are cores (each takes some hundred MB).
class CompileTurn {
 public:
  CompileTurn() { turns().acquire(); }
  ~CompileTurn() { turns().release(); }
  CompileTurn(const CompileTurn&) = delete;
  CompileTurn& operator=(const CompileTurn&) = delete;

 private:
  static std::counting_semaphore<>& turns() {
    static std::counting_semaphore<> semaphore(compile_threads());
    return semaphore;
  }
};

}  // namespace

KernelCompiler::KernelCompiler(std::string architecture, SourceSet sources, const DiskCache& cache)
    : architecture_(std::move(architecture)), sources_(std::move(sources)), cache_(cache) {}

KernelCompiler& KernelCompiler::shared(const std::string& architecture, const SourceSet& sources) {
  static std::mutex mutex;
  // Never destroyed: kernels may be used while other static objects are.
  static auto& compilers = *new std::map<std::string, std::unique_ptr<KernelCompiler>>();
  const std::scoped_lock lock(mutex);
  auto& compiler = compilers[architecture + '\n' + sources.hash];
  if (compiler == nullptr) {
    compiler = std::make_unique<KernelCompiler>(architecture, sources, DiskCache::user());
  }
  return *compiler;
}

CompiledKernel KernelCompiler::make(const KernelRequest& request) const {
  const auto start = std::chrono::steady_clock::now();
  const std::string key = compile_key(sources_, request, architecture_);
  if (auto found = cache_.find(key)) {
    found->milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return *std::move(found);
  }
  const CompileTurn turn;
  CompiledKernel kernel = compile(sources_, request, architecture_);
  cache_.store(key, kernel);
  return kernel;
}

KernelCompiler::Slot& KernelCompiler::slot_of(const KernelRequest& request) {
  const std::scoped_lock lock(mutex_);
  return slots_[request.header + '\n' + request.expression];
}

std::shared_ptr<const CompiledKernel> KernelCompiler::get(const KernelRequest& request) {
  Slot& slot = slot_of(request);
  const std::scoped_lock lock(slot.mutex);
  if (slot.kernel == nullptr) {
    slot.kernel = std::make_shared<const CompiledKernel>(make(request));
  }
  return slot.kernel;
}

std::vector<std::shared_ptr<const CompiledKernel>> KernelCompiler::get_all(std::span<const KernelRequest> requests) {
  std::vector<std::shared_ptr<const CompiledKernel>> kernels(requests.size());
  std::vector<std::exception_ptr> failures(requests.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < requests.size(); i = next++) {
      try {
        kernels[i] = get(requests[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    const std::size_t threads = std::min(requests.size(), static_cast<std::size_t>(compile_threads()));
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) {
      helpers.emplace_back(work);
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
  }
  return kernels;
}

}  // namespace moelink
