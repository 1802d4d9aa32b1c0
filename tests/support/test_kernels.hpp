// Kernels that belong to the tests (tests/kernels/*.cuh, included as moelink/test/*.cuh), on either backend: through
// g++ on the host, through the library's own compiler on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "jit/compile.hpp"
#include "jit/kernel_request.hpp"
#include "jit/sources.hpp"
#include "launch/host_kernel.hpp"
#include "launch/kernel.hpp"
#include "moelink/device.hpp"

namespace moelink::test {

/// The embedded sources and those of the test kernels.
[[nodiscard]] const SourceSet& test_kernel_sources();

[[nodiscard]] std::shared_ptr<const LoadedKernel> load_on_gpu(Device device, const KernelRequest& request);

/// A loaded test kernel K.
template <class K>
[[nodiscard]] std::shared_ptr<const LoadedKernel> load_test_kernel(Device device, const typename K::Spec& spec) {
  if (device.is_host()) {
    return std::make_shared<const HostKernel<K>>(spec);
  }
  return load_on_gpu(device, make_request<K>(spec));
}

}  // namespace moelink::test
