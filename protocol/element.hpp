// Element types as kernels know them.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// What a kernel computes on. `none`: rows are only moved.
enum class Element : u8 { none, bfloat16, float16, float32 };

constexpr int bytes_of(Element element) { return element == Element::float32 ? 4 : element == Element::none ? 1 : 2; }

/// An Element as a type, for templates.
template <Element E>
struct ElementConstant {
  MOELINK_DEVICE constexpr Element operator()() const { return E; }
};

/// Calls body(ElementConstant<element>{}) for a type that sums exist for. Where `element` is a constant only one call
/// is left after inlining.
template <class Body>
MOELINK_DEVICE void with_element(Element element, Body&& body) {
  switch (element) {
    case Element::bfloat16:
      return body(ElementConstant<Element::bfloat16>{});
    case Element::float16:
      return body(ElementConstant<Element::float16>{});
    case Element::float32:
      return body(ElementConstant<Element::float32>{});
    case Element::none:
      return;
  }
}

}  // namespace moelink
