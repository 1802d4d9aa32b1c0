// From a kind to its implementation, and which kind a group of ranks uses.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "transports/put.hpp"
#include "transports/rendezvous.hpp"

namespace moelink {

/// Not yet connected. Throws ErrorCode::unsupported if this build or machine lacks it.
[[nodiscard]] std::unique_ptr<PutTransport> make_put(PutKind kind, const PutOptions& options);

/// "loopback", "verbs" or "ucx". Throws ErrorCode::invalid_argument naming the value and where it came from.
[[nodiscard]] PutKind put_kind_of(std::string_view name, std::string_view from);

/// Made and connected on every rank: of the kind that `only` names (default: MOELINK_PUT), else the first kind, in
/// PutKind's order, that every rank can make (loopback: if all ranks are in one process). Collective. If no kind works,
/// all ranks throw, with the reason against each.
[[nodiscard]] std::unique_ptr<PutTransport> connect_best_put(Rendezvous& rendezvous, const PutOptions& options,
                                                             std::optional<PutKind> only = std::nullopt);

}  // namespace moelink
