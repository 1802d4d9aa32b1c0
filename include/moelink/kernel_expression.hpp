// C++ names and values as source text: how a spec that is a value on the host becomes a template argument on a GPU.
#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

// Outside of moelink, because g++ leaves out of a name the namespaces that the function which prints it is in.
namespace moelink_names {

template <class T>
constexpr std::string_view signature() {
  return __PRETTY_FUNCTION__;
}

}  // namespace moelink_names

namespace moelink {

/// The qualified name of T ("moelink::LocalDecode"), as g++ and clang spell it in their own diagnostics.
template <class T>
constexpr std::string_view type_name() {
  constexpr std::string_view kBefore = "T = ";
  constexpr std::string_view kSignature = moelink_names::signature<T>();
  constexpr auto kStart = kSignature.find(kBefore) + kBefore.size();
  return kSignature.substr(kStart, kSignature.find_first_of(";]", kStart) - kStart);
}

/// An integer literal of T's value whose type holds it.
template <std::integral T>
std::string to_literal(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_unsigned_v<T>) {
    return std::to_string(value) + "UL";
  } else {
    // There is no negative literal: -9223372036854775808L is the negation of a number that does not fit.
    if (static_cast<long>(value) == std::numeric_limits<long>::min()) {
      return "(" + std::to_string(static_cast<long>(value) + 1) + "L - 1)";
    }
    return std::to_string(value) + (sizeof(T) == sizeof(long) ? "L" : "");
  }
}

template <class T>
requires std::is_enum_v<T> std::string to_literal(T value) {
  return std::string(type_name<T>()) + "(" + to_literal(static_cast<std::underlying_type_t<T>>(value)) + ")";
}

/// A spec as an expression: "moelink::LocalCombineSpec{7168L, 8, 256, moelink::Element(1UL), moelink::Element(1UL)}".
/// A spec has `fields(visit)`, which calls `visit` with every member in order; members are integers and enums.
template <class Spec>
std::string to_expression(const Spec& spec) {
  static_assert(std::is_aggregate_v<Spec>, "a spec is a plain struct, so that {...} initialises its members in order");
  std::string text = std::string(type_name<Spec>()) + "{";
  spec.fields([&text](const auto&... fields) {
    std::string_view separator;
    ((text.append(separator).append(to_literal(fields)), separator = ", "), ...);
    return 0;
  });
  return text + "}";
}

}  // namespace moelink
