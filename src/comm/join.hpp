// From an address to a Bootstrap: rank 0 opens a group, the others join it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/socket.hpp"
#include "base/unique_fd.hpp"
#include "comm/admission.hpp"
#include "comm/socket_bootstrap.hpp"

namespace moelink {

/// One rank that wants to meet the others.
struct Joiner {
  int rank = 0;
  GroupKey key;
  std::chrono::milliseconds patience{60'000};
  /// Some paths may lead elsewhere, such as to an address that two machines both give to a bridge of theirs: being
  /// turned away then means to try the next.
  bool paths_are_guesses = false;
};

/// Rank 0: starts a hub behind `listeners` and waits until every rank has joined. `where` is what errors call the
/// place.
[[nodiscard]] std::unique_ptr<SocketBootstrap> open_group(const Joiner& joiner, std::vector<UniqueFd> listeners,
                                                          const std::string& where);

/// A place where rank 0 may be: the address, and the local one to come from (or none).
struct Path {
  SocketAddress address;
  std::optional<SocketAddress> source = {};
};

/// Other ranks: tries the paths in turn, again and again, until rank 0 lets this rank in and every rank has joined.
/// `find_paths` is called before each turn, since names may not resolve before rank 0's host is up; what it throws is
/// tried again too. Throws ErrorCode::timeout with the last obstacle, or rank 0's refusal at once.
[[nodiscard]] std::unique_ptr<SocketBootstrap> join_group(const Joiner& joiner,
                                                          const std::function<std::vector<Path>()>& find_paths,
                                                          const std::string& where);

}  // namespace moelink
