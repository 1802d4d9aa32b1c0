#include "engine/requests/request.hpp"

namespace moelink::engine {

std::string_view name_of(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::failed:
      return "failed";
  }
  return "unknown";
}

}  // namespace moelink::engine
