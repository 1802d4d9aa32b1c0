// Ranks of this process that meet over TCP on the loopback interface.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/socket.hpp"
#include "comm/join.hpp"
#include "comm/run_threads.hpp"

namespace moelink::testing {

/// A free port of a loopback address, listening.
struct Door {
  explicit Door(const std::string& host = "127.0.0.1") : listener(listen_at(resolve(host, 0).front())) {
    address = local_address(listener.get());
  }
  UniqueFd listener;
  SocketAddress address;
};

/// Rank `rank` of a group that meets at `door`.
inline std::unique_ptr<SocketBootstrap> meet(Door& door, const Joiner& joiner) {
  if (joiner.rank == 0) {
    std::vector<UniqueFd> listeners;
    listeners.push_back(std::move(door.listener));
    return open_group(joiner, std::move(listeners), door.address.to_string());
  }
  return join_group(
      joiner, [address = door.address] { return std::vector{Path{address}}; }, door.address.to_string());
}

/// Runs body(bootstrap) on a thread for each of `size` ranks that have met.
template <class Body>
void on_loopback(int size, Body body, const std::string& host = "127.0.0.1") {
  Door door(host);
  run_threads(static_cast<std::size_t>(size), [&](std::size_t r) {
    const auto bootstrap = meet(door, {static_cast<int>(r), {size, 1, "a key"}, std::chrono::milliseconds(20'000)});
    body(*bootstrap);
  });
}

}  // namespace moelink::testing
