// The door of a group: who may come in. Strangers (garbage, silence, port scanners, wrong keys) are turned away without
// a word reaching those inside.
#pragma once

#include <poll.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "comm/connection.hpp"
#include "comm/wire.hpp"

namespace moelink {

/// What the hub knows of its group.
struct GroupKey {
  int size = 0;
  std::uint64_t job = 0;
  std::string secret;  ///< empty: none
};

/// A rank whose handshake is complete. It has not been told yet: accept() or refuse() does that.
struct Candidate {
  Connection connection;
  std::string from;
  Hello hello;
  Greeting greeting;
};

/// Keeps connections from their acceptance to the end of their handshake. Bounded in everything: connections, bytes and
/// seconds each. Driven by the hub's event loop.
class Admission {
 public:
  Admission(GroupKey key, std::vector<UniqueFd> listeners);

  /// A connection that is already there, such as rank 0's to its own hub.
  void take_in(UniqueFd fd, std::string from);

  /// Appends what to wait for.
  void collect(std::vector<pollfd>& waits) const;
  /// When a connection must be dropped for its silence.
  [[nodiscard]] std::optional<Deadline> next_deadline() const;
  /// Does what can be done without waiting. Returns the ranks that completed their handshake.
  [[nodiscard]] std::vector<Candidate> advance();

  /// Nobody comes in any more: closes the listeners and what waits at the door.
  void close();

  void accept(Candidate& candidate) const;
  void refuse(Connection& connection, const std::string& from, const GroupFault& reason);
  /// The last few refusals, for the error that names missing ranks; empty if there were none.
  [[nodiscard]] std::string describe_refusals() const;

 private:
  struct Visitor {
    Connection connection;
    std::string from;
    Greeting greeting;
    Deadline until;
  };
  void accept_all(int listener);
  /// False: the visitor is done with, one way or the other.
  bool advance(Visitor& visitor, std::vector<Candidate>& candidates);
  /// Why this hello cannot be one of ours; nothing if it can.
  [[nodiscard]] std::optional<GroupFault> judge(const Greeting& greeting, const Hello& hello) const;

  GroupKey key_;
  std::vector<UniqueFd> listeners_;
  std::deque<Visitor> visitors_;  // oldest first
  std::deque<std::string> refusals_;
};

}  // namespace moelink
