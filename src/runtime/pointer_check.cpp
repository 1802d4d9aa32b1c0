#include "runtime/pointer_check.hpp"

#include "base/text.hpp"
#include "moelink/error.hpp"
#include "runtime/cuda_backend.hpp"

namespace moelink {

void PointerCheck::ask_driver(const char* name, const void* pointer) const {
  const std::string reason = cuda::unreachable_because(device_.ordinal(), pointer);
  if (reason.empty()) return;
  throw Error(ErrorCode::invalid_argument, text(name, " (", pointer, ") is ", reason, "; expected memory of ",
                                                device_.name(), " (moelink::Buffer, cuMemAlloc, ...)"));
}

}  // namespace moelink
