// Every environment variable the library reads: once, here, into one struct. A new variable is a member here and a line
// in the table of environment.cpp, which is also what --help prints.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace moelink {

struct Environment {
  bool cache = true;            ///< MOELINK_CACHE: read and write compiled kernels on disk
  std::string cache_directory;  ///< MOELINK_CACHE_DIR, else $XDG_CACHE_HOME/moelink, else ~/.cache/moelink; empty: none
  std::string nvrtc_library;    ///< MOELINK_NVRTC: path of the NVRTC library; empty: search
  int compile_threads = 0;      ///< MOELINK_COMPILE_THREADS: kernels compiled at once; 0: number of cores
  int host_threads = 0;         ///< MOELINK_HOST_THREADS: block threads of a host stream; 0: number of cores
  // How ranks meet (docs/bootstrap.md)
  std::chrono::milliseconds deadline{60'000};  ///< MOELINK_DEADLINE, seconds: longest wait for other ranks
  std::string node;                            ///< MOELINK_NODE: name of this node; empty: boot id and host name
  int ranks_per_node = 0;                      ///< MOELINK_RANKS_PER_NODE: pretended nodes; 0: real ones
  std::string secret;                          ///< MOELINK_SECRET: key that every rank must prove to know; empty: none
  std::string socket_interface;  ///< MOELINK_SOCKET_IFNAME: network interface of the bootstrap; empty: any
  int port = 0;                  ///< MOELINK_PORT: port on which rank 0 listens; 0: MASTER_PORT
  std::string socket_directory;  ///< MOELINK_SOCKET_DIR: Unix sockets of one node's ranks; empty: /tmp/moelink-<uid>
  bool nvls = true;              ///< MOELINK_NVLS, NCCL_NVLS_ENABLE: multicast may be used; false if either is 0
  bool pack = true;              ///< MOELINK_PACK: two ranks may all-reduce by lines of 16 bytes
  // Puts between nodes (docs/puts.md)
  std::string put;              ///< MOELINK_PUT: transport of puts: loopback, verbs or ucx; empty: chosen
  std::string verbs_library;    ///< MOELINK_VERBS: path of the verbs library; empty: libibverbs.so.1
  std::string verbs_devices;    ///< MOELINK_VERBS_DEVICES: NICs of this rank; empty: the nearest
  int verbs_gid_index = -1;     ///< MOELINK_VERBS_GID: index in the port's table; -1: chosen
  int verbs_service_level = 0;  ///< MOELINK_VERBS_SERVICE_LEVEL
  int verbs_traffic_class = 0;  ///< MOELINK_VERBS_TRAFFIC_CLASS
  std::chrono::milliseconds verbs_timeout{67};  ///< MOELINK_VERBS_TIMEOUT: until a put without answer is sent again
  bool verbs_relaxed_ordering = true;  ///< MOELINK_VERBS_RELAXED_ORDERING: PCIe writes of payloads may pass each other
  bool warnings = true;                ///< MOELINK_WARNINGS: print warnings to stderr

  /// The variables of this process, read at the first call and never again. Throws invalid_argument, naming variable
  /// and value, if one cannot be understood.
  [[nodiscard]] static const Environment& get();

  /// Reads from `lookup` (name -> value or nothing) instead of the process: for tests.
  using Lookup = std::function<std::optional<std::string>(const char* name)>;
  /// The variables of this process as they are now: for those that launchers set (src/comm/launcher.hpp).
  [[nodiscard]] static std::optional<std::string> process(const char* name);
  [[nodiscard]] static Environment read(const Lookup& lookup);
};

}  // namespace moelink
