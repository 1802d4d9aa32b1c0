// From kernel descriptors (kernels/exec/spec.cuh) to kernels that can be launched, on either backend.
//
//   KernelLoader loader(device);
//   Kernel<LocalDecode> decode = loader.add<LocalDecode>(spec);
//   loader.load();                                  // compiles in parallel (or finds in a cache), loads every function
//   decode.launch({.grid = 132, .scratch_bytes = 4096}, args, stream);
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jit/sources.hpp"
#include "launch/host_kernel.hpp"
#include "launch/kernel.hpp"
#include "moelink/device.hpp"

namespace moelink {

/// Collects the kernels that an object will need, then makes all of them ready at once. Used at construction; the
/// kernels outlive the loader. One thread at a time; loaders of several threads share compilations and modules.
class KernelLoader {
 public:
  explicit KernelLoader(Device device) : KernelLoader(device, embedded_sources()) {}
  /// Of kernels in other sources, which live as long as the process.
  KernelLoader(Device device, SourceSet sources) : device_(device), sources_(std::move(sources)) {}

  /// Asks for a kernel; touches no device. It can be launched after load(). Equal specs give the same kernel.
  template <class K>
  Kernel<K> add(const typename K::Spec& spec) {
    return Kernel<K>(spec, add(make_request<K>(spec), [&] { return std::make_shared<const HostKernel<K>>(spec); }));
  }

  /// The same without types: on_host() makes what runs on the host.
  template <class MakeHostKernel>
  std::shared_ptr<const KernelSlot> add(KernelRequest request, MakeHostKernel&& on_host) {
    std::shared_ptr<KernelSlot> slot = slot_for(std::move(request));
    if (device_.is_host() && slot->loaded == nullptr) {
      slot->on_host = on_host();
    }
    return slot;
  }

  /// Compiles what no cache has, in parallel, and loads every function; nothing is compiled or loaded later. May be
  /// called again after further add()s. Throws ErrorCode::compile with the compiler's log, unsupported or cuda; kernels
  /// added since the last load() are then not loaded.
  void load();

  /// One line per loaded kernel: name, where it came from, milliseconds, registers. For people.
  [[nodiscard]] std::string describe() const;

  /// What was asked for, in that order. Needs no device: moelink-warmup compiles these where there is none.
  [[nodiscard]] std::vector<KernelRequest> requests() const;

 private:
  [[nodiscard]] std::shared_ptr<KernelSlot> slot_for(KernelRequest request);

  Device device_;
  SourceSet sources_;
  std::vector<std::shared_ptr<KernelSlot>> slots_;
};

}  // namespace moelink
