// Objects that were moved from have nothing left to work on; their calls say so instead of reading a null pointer.
#pragma once

#include <source_location>
#include <string>

#include "moelink/error.hpp"

namespace moelink {

/// What `owner` (a smart pointer) points to. Throws out_of_order where it was moved away; `name` is the public class.
template <class Owner>
[[nodiscard]] auto& not_moved_from(const Owner& owner, const char* name,
                                   std::source_location where = std::source_location::current()) {
  if (owner == nullptr) {
    throw Error(ErrorCode::out_of_order,
                std::string("this ") + name + " was moved from; use the object that it was moved to", where);
  }
  return *owner;
}

}  // namespace moelink
