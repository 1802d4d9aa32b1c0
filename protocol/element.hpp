// Element types as kernels know them.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// What a kernel computes on. `none`: rows are only moved.
enum class Element : u8 { none, bfloat16, float16, float32 };

constexpr int bytes_of(Element element) {
  return element == Element::float32 ? 4 : element == Element::none ? 1 : 2;
}

}  // namespace moelink
