#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "comm/join.hpp"
#include "comm/meet.hpp"
#include "comm/thread_bootstrap.hpp"

namespace moelink {
namespace {

std::uint64_t number_of(const std::string& job) {
  std::uint64_t number = 0;
  if (!job.empty()) {
    const Sha256Digest digest = sha256(job);
    for (std::size_t i = 0; i < sizeof number; ++i) {
      number = number << 8 | digest[i];
    }
  }
  return number;
}

/// Outside the ranges that kernels give to clients, equal on every rank of a job.
int port_of_job(std::uint64_t job) { return 20'000 + static_cast<int>(job % 10'000); }

bool is_address_of_this_machine(const SocketAddress& address) {
  return address.is_loopback() || std::ranges::any_of(interface_addresses(), [&](const SocketAddress& own) {
           return own.host() == address.host();
         });
}

/// On the chosen interface; else at MASTER_ADDR itself where it is a number of this machine, so that 127.0.0.1 is not
/// open to the world; else everywhere: a name may mean 127.0.1.1 here and something else to the other ranks.
std::vector<UniqueFd> listen_for(const std::string& address, int port, const std::string& interface) {
  if (!interface.empty()) {
    return listen_on_interface(interface, port);
  }
  std::vector<UniqueFd> listeners;
  if (is_numeric_host(address)) {
    const SocketAddress own = resolve(address, port).front();
    if (is_address_of_this_machine(own)) {
      listeners.push_back(listen_at(own));
      return listeners;
    }
  }
  listeners.push_back(listen_everywhere(port));
  return listeners;
}

std::vector<UniqueFd> listen_for_ranks(const std::string& address, int port, const std::string& interface) {
  try {
    return listen_for(address, port, interface);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::system) {
      throw;
    }
    throw Error(ErrorCode::system, text("rank 0 cannot listen on port ", port, ": ", error.what(),
                                        "; if another program holds it (torch keeps a store at MASTER_PORT), set "
                                        "MOELINK_PORT on every rank"));
  }
}

std::vector<Path> paths_to(const std::string& address, int port, const std::string& interface) {
  const auto sources = interface.empty() ? std::vector<SocketAddress>() : interface_addresses(interface);
  std::vector<Path> paths;
  for (const SocketAddress& target : resolve(address, port)) {
    if (sources.empty()) {
      paths.push_back({target});
    }
    for (const SocketAddress& source : sources) {
      if (source.family() == target.family() && source.is_link_local() == target.is_link_local()) {
        paths.push_back({target, source});
      }
    }
  }
  if (paths.empty()) {
    throw Error(ErrorCode::invalid_argument, text("no address of the interface ", interface, " can reach ", address));
  }
  return paths;
}

std::unique_ptr<Bootstrap> meet_over_tcp(const Joiner& joiner, const std::string& address, int port,
                                         const std::string& interface) {
  const std::string where = text(address, ":", port);
  if (joiner.rank == 0) {
    return open_group(joiner, listen_for_ranks(address, port, interface), where);
  }
  return join_group(
      joiner, [&] { return paths_to(address, port, interface); }, where);
}

std::unique_ptr<Bootstrap> meet_on_one_machine(const Joiner& joiner) {
  // The user is part of the name, so that users do not meet by accident; that nobody does on purpose is checked by the
  // kernel's word on who is at the other end.
  const SocketAddress address = SocketAddress::abstract_unix(text("moelink-", ::geteuid(), "-", joiner.key.job));
  if (joiner.rank == 0) {
    std::vector<UniqueFd> listeners;
    listeners.push_back(listen_at(address));
    return open_group(joiner, std::move(listeners), address.to_string());
  }
  return join_group(
      joiner, [&] { return std::vector{Path{address}}; }, address.to_string());
}

}  // namespace

std::unique_ptr<Bootstrap> meet_by_launcher(const Launch& launch, const Environment& environment,
                                            std::chrono::milliseconds patience) {
  if (launch.size == 1) {
    return std::move(ThreadBootstrap::make_group(1).front());
  }
  const std::uint64_t job = number_of(launch.job);
  const Joiner joiner{launch.rank, {launch.size, job, environment.secret}, patience};
  if (!launch.address.empty()) {
    int port = environment.port != 0 ? environment.port : launch.port;
    if (port == 0 && launch.job.empty()) {
      throw Error(ErrorCode::invalid_argument, text("MASTER_ADDR=", launch.address,
                                                    " has no port; set MASTER_PORT, or MOELINK_PORT, on every rank"));
    }
    port = port != 0 ? port : port_of_job(job);
    return meet_over_tcp(joiner, launch.address, port, environment.socket_interface);
  }
  if (launch.local_size == launch.size && !launch.job.empty()) {
    return meet_on_one_machine(joiner);
  }
  throw Error(ErrorCode::invalid_argument,
              text(launch.launcher, " started ", launch.size, " ranks, ",
                   launch.local_size ? text(*launch.local_size) : "an unknown number of them",
                   " on this machine, and none knows where rank 0 is; set MASTER_ADDR (and MASTER_PORT) to rank 0's "
                   "address on every rank"));
}

}  // namespace moelink
