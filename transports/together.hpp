// Steps that all ranks take, or none.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "transports/rendezvous.hpp"

namespace moelink {

/// Runs `step` here, then learns how it went everywhere. Collective, and a barrier: on return every rank's step is
/// done. If it failed anywhere, every rank throws: the rank concerned its own exception, the others ErrorCode::peer
/// with that rank and its words. So that one rank's failure never leaves the others waiting.
void together(Rendezvous& rendezvous, std::string_view what, const std::function<void()>& step);

/// As together(), but a failed step is an answer, not an exception: the first rank that failed and its words, equal on
/// every rank; empty if none did. Still throws if the ranks cannot meet.
[[nodiscard]] std::string try_together(Rendezvous& rendezvous, std::string_view what,
                                       const std::function<void()>& step);

}  // namespace moelink
