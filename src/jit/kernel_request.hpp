// What has to be compiled.
#pragma once

#include <string>
#include <string_view>

#include "moelink/kernel_expression.hpp"

namespace moelink {

/// One instantiation of moelink::entry (kernels/exec/entry.cuh).
struct KernelRequest {
  std::string name;        ///< "LocalDecode", for people
  std::string header;      ///< "moelink/device/moe/local_decode.cuh"
  std::string expression;  ///< "moelink::entry<moelink::LocalDecode, moelink::LocalDispatchSpec{...}>"
  int threads = 0;         ///< block size, from the spec

  friend bool operator==(const KernelRequest&, const KernelRequest&) = default;
};

/// The request that belongs to a kernel descriptor (kernels/exec/spec.cuh) and a spec.
template <class K>
KernelRequest make_request(const typename K::Spec& spec) {
  static_assert(type_name<K>().ends_with(std::string_view(K::kName)), "kName is the name of the descriptor");
  return {.name = K::kName,
          .header = K::kHeader,
          .expression = "moelink::entry<" + std::string(type_name<K>()) + ", " + to_expression(spec) + ">",
          .threads = static_cast<int>(spec.threads)};
}

}  // namespace moelink
