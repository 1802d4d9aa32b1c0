#include "launch/kernel_loader.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "jit/kernel_compiler.hpp"
#include "launch/cuda_kernel.hpp"

namespace moelink {
namespace {

void load_on_host(std::span<const std::shared_ptr<KernelSlot>> slots) {
  for (const auto& slot : slots) {
    slot->loaded = slot->on_host;
  }
}

#if MOELINK_HAVE_CUDA

void load_on_gpu(Device device, const SourceSet& sources, std::span<const std::shared_ptr<KernelSlot>> slots) {
  std::vector<KernelRequest> requests;
  for (const auto& slot : slots) {
    requests.push_back(slot->request);
  }
  const std::string architecture = architecture_of(CudaDriver::get(), device);
  const auto compiled = KernelCompiler::shared(architecture, sources).get_all(requests);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i]->compiled = compiled[i];
    slots[i]->loaded = loaded_cuda_kernel(device, sources.hash, slots[i]->request, *compiled[i]);
  }
}

#else

void load_on_gpu(Device device, const SourceSet&, std::span<const std::shared_ptr<KernelSlot>>) {
  throw Error(ErrorCode::unsupported, text("kernels cannot be loaded on ", device.name(),
                                           ": this library was built without CUDA; use Device::host()"));
}

#endif

}  // namespace

std::shared_ptr<KernelSlot> KernelLoader::slot_for(KernelRequest request) {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& s) { return s->request == request; });
  if (found != slots_.end()) {
    return *found;
  }
  slots_.push_back(std::make_shared<KernelSlot>(KernelSlot{.request = std::move(request)}));
  return slots_.back();
}

std::vector<KernelRequest> KernelLoader::requests() const {
  std::vector<KernelRequest> requests;
  for (const auto& slot : slots_) {
    requests.push_back(slot->request);
  }
  return requests;
}

void KernelLoader::load() {
  std::vector<std::shared_ptr<KernelSlot>> waiting;
  std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(waiting),
               [](const auto& slot) { return slot->loaded == nullptr; });
  if (device_.is_host()) {
    load_on_host(waiting);
  } else {
    load_on_gpu(device_, sources_, waiting);
  }
}

std::string KernelLoader::describe() const {
  std::string lines;
  for (const auto& slot : slots_) {
    lines += slot->request.name;
    if (const CompiledKernel* compiled = slot->compiled.get(); compiled != nullptr) {
      lines += text(": ", name_of(compiled->origin), ", ", std::lround(compiled->milliseconds), " ms, ",
                    compiled->usage.registers, " registers, ", compiled->usage.spill_store_bytes, " bytes spilled");
    }
    lines += '\n';
  }
  return lines;
}

}  // namespace moelink
