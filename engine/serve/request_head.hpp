// What the head of a request announces, looked at before any of its body is read.
#pragma once

#include <httplib.h>

#include <cstddef>

#include "engine/serve/api_error.hpp"

namespace moelink::engine {

/// A request whose body is not read: the connection ends with the answer, since nobody knows where the next would
/// begin.
class RefusedUnread final : public ApiError {
 public:
  using ApiError::ApiError;
};

/// Throws RefusedUnread for a body that cannot be taken as it is announced: 411 without a length, 400 for a length that
/// is no number or two that may differ, 413 for more than `max_bytes`, 415 for one that is encoded, or
/// a form in parts.
void check_body_head(const httplib::Request& request, std::size_t max_bytes);

/// Whether a body is announced at all.
[[nodiscard]] bool announces_body(const httplib::Request& request);

}  // namespace moelink::engine
