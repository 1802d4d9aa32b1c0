#pragma once

#include <source_location>
#include <string>

#include "moelink/error.hpp"

namespace moelink {

/// What the caller passed cannot be used: throws ErrorCode::invalid_argument with this sentence.
[[noreturn]] inline void refuse(const std::string& sentence,
                                const std::source_location& where = std::source_location::current()) {
  throw Error(ErrorCode::invalid_argument, sentence, where);
}

}  // namespace moelink
