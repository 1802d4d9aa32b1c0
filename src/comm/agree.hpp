// Checks that every rank must pass together.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bootstrap.hpp"

namespace moelink {

/// One value that must be equal on every rank.
struct ConfigField {
  std::string name;   ///< "max_tokens"
  std::string value;  ///< "4096"
};

/// Collective. Throws ErrorCode::mismatch on every rank, with the same words, if any field differs: "Exchange: rank 2
/// has max_tokens = 64 where rank 0 has 128". A mismatch is no fault: nobody is left waiting, the group lives on.
void compare_over_ranks(Bootstrap& bootstrap, std::string_view what, const std::vector<ConfigField>& fields,
                        std::chrono::milliseconds deadline);

/// Collective. Runs `body` (which must not be collective), then tells the others whether it threw: either every rank
/// returns, or every rank throws (its own error, or ErrorCode::peer with the words of the lowest rank that failed). So
/// arguments that one rank refuses leave no other waiting.
void agree_over_ranks(Bootstrap& bootstrap, std::string_view what, const std::function<void()>& body,
                      std::chrono::milliseconds deadline);

}  // namespace moelink
