// Element types: those of the public API as kernels know them.
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/types.hpp"

namespace moelink {

/// Element::none of what has no arithmetic (bytes).
[[nodiscard]] constexpr Element element_of(DataType type) noexcept {
  switch (type) {
    case DataType::bfloat16:
      return Element::bfloat16;
    case DataType::float16:
      return Element::float16;
    case DataType::float32:
      return Element::float32;
    case DataType::bytes:
      break;
  }
  return Element::none;
}

}  // namespace moelink
