// moelink/kernel.hpp: kernels of users, through the same loader as the library's.
#include <array>
#include <cstring>

#include "base/text.hpp"
#include "jit/kernel_compiler.hpp"
#include "jit/user_sources.hpp"
#include "launch/kernel_loader.hpp"
#include "launch/kernel_report.hpp"
#include "moelink/kernel.hpp"

namespace moelink {

class LoadedUserKernel {
 public:
  explicit LoadedUserKernel(std::shared_ptr<const KernelSlot> slot) : slot_(std::move(slot)) {}

  [[nodiscard]] const std::string& name() const { return slot_->request.name; }
  [[nodiscard]] const LoadedKernel& loaded() const {
    if (slot_->loaded == nullptr) {
      throw Error(ErrorCode::out_of_order, name() + " is used before KernelSet::load has loaded it");
    }
    return *slot_->loaded;
  }

 private:
  std::shared_ptr<const KernelSlot> slot_;
};

namespace {

/// On the host, the name alone: spec and arguments come with each launch.
class HostUserKernel final : public LoadedKernel {
 public:
  explicit HostUserKernel(std::string name) : name_(std::move(name)) {}

  void launch(const LaunchShape& shape, const void* launch, StreamView stream) const override {
    const auto& on_host = *static_cast<const detail::HostLaunch*>(launch);
    HostQueue& queue = host_queue_of(stream, name_.c_str());
    Call call{.run = on_host.run};
    std::memcpy(call.bytes.data(), on_host.call, on_host.call_bytes);
    queue.launch_blocks(shape.grid, static_cast<std::size_t>(shape.scratch_bytes),
                        [call](const HostExec& ex) { call.run(ex, call.bytes.data()); });
  }

  [[nodiscard]] int max_blocks_per_sm(int) const override { return 1; }

 private:
  struct Call {
    void (*run)(const HostExec& ex, const void* call) = nullptr;
    alignas(16) std::array<std::byte, 768> bytes{};
  };

  std::string name_;
};

}  // namespace

namespace detail {

void launch_user_kernel(const LoadedUserKernel& kernel, const LaunchShape& shape, const void* args,
                        const HostLaunch& on_host, StreamView stream) {
  const LoadedKernel& loaded = kernel.loaded();
  // A kernel loaded on the host refuses a GPU's stream, and the other way around, before it looks at its arguments.
  loaded.launch(shape, dynamic_cast<const HostUserKernel*>(&loaded) != nullptr ? &on_host : args, stream);
}

int user_kernel_blocks_per_sm(const LoadedUserKernel& kernel, int scratch_bytes) {
  return kernel.loaded().max_blocks_per_sm(scratch_bytes);
}

}  // namespace detail

struct KernelSet::Impl {
  SourceSet sources;
  KernelLoader loader;
};

KernelSet::KernelSet(Device device, std::vector<KernelHeader> headers) {
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(headers.size());
  for (KernelHeader& header : headers) {
    pairs.emplace_back(std::move(header.name), std::move(header.text));
  }
  const SourceSet sources = with_user_sources(pairs);
  impl_ = std::make_unique<Impl>(Impl{sources, KernelLoader(device, sources)});
}

KernelSet::~KernelSet() = default;
KernelSet::KernelSet(KernelSet&&) noexcept = default;
KernelSet& KernelSet::operator=(KernelSet&&) noexcept = default;

std::shared_ptr<const LoadedUserKernel> KernelSet::add(const detail::UserKernelRequest& request) {
  auto slot = impl_->loader.add(
      KernelRequest{
          .name = request.name, .header = request.header, .expression = request.expression, .threads = request.threads},
      [&] { return std::make_shared<const HostUserKernel>(request.name); });
  return std::make_shared<const LoadedUserKernel>(std::move(slot));
}

void KernelSet::load() { impl_->loader.load(); }

std::vector<KernelReport> KernelSet::warm_up(const std::string& architecture) const {
  const std::vector<KernelRequest> requests = impl_->loader.requests();
  return report_on(requests, KernelCompiler::shared(architecture, impl_->sources).get_all(requests));
}

}  // namespace moelink
