#include "base/environment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "moelink/environment.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

struct Variable {
  std::string_view name;
  std::string_view help;
  void (*set)(Environment& environment, const Variable& variable, const std::string& value);
};

bool parse_switch(const Variable& variable, const std::string& value) {
  if (value == "1" || value == "0") {
    return value == "1";
  }
  throw Error(ErrorCode::invalid_argument,
              std::string(variable.name) + "=" + value + " is not a switch; set it to 0 or 1, or unset it");
}

int parse_count(const Variable& variable, const std::string& value, int largest = 4096) {
  int count = -1;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, count);
  if (error != std::errc() || stop != end || count < 0 || count > largest) {
    throw Error(ErrorCode::invalid_argument, std::string(variable.name) + "=" + value + " is not a number from 0 to " +
                                                 std::to_string(largest) + "; correct it or unset it");
  }
  return count;
}

std::chrono::milliseconds parse_seconds(const Variable& variable, const std::string& value) {
  constexpr double kMax = 86400;
  double seconds = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds >= 0.001 && seconds <= kMax)) {
    throw Error(ErrorCode::invalid_argument,
                std::string(variable.name) + "=" + value +
                    " is not a number of seconds from 0.001 to 86400; correct it or unset it");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

constexpr std::array kVariables = {
    Variable{"MOELINK_CACHE", "0: neither read nor write the cache of compiled kernels (default 1)",
             [](Environment& e, const Variable& v, const std::string& value) { e.cache = parse_switch(v, value); }},
    Variable{"MOELINK_CACHE_DIR",
             "directory of compiled kernels (default $XDG_CACHE_HOME/moelink, else ~/.cache/moelink)",
             [](Environment& e, const Variable&, const std::string& value) { e.cache_directory = value; }},
    Variable{"MOELINK_NVRTC", "path of the NVRTC library (default: the newest libnvrtc.so that the loader finds)",
             [](Environment& e, const Variable&, const std::string& value) { e.nvrtc_library = value; }},
    Variable{
        "MOELINK_COMPILE_THREADS", "kernels compiled at once (default 0: as many as cores)",
        [](Environment& e, const Variable& v, const std::string& value) { e.compile_threads = parse_count(v, value); }},
    Variable{
        "MOELINK_HOST_THREADS", "threads that run the blocks of a host stream (default 0: as many as cores)",
        [](Environment& e, const Variable& v, const std::string& value) { e.host_threads = parse_count(v, value); }},
    Variable{"MOELINK_DEADLINE", "longest wait for other ranks at set-up, in seconds (default 60)",
             [](Environment& e, const Variable& v, const std::string& value) { e.deadline = parse_seconds(v, value); }},
    Variable{"MOELINK_NODE", "name of this node; ranks with equal names share memory (default: boot id and host name)",
             [](Environment& e, const Variable&, const std::string& value) { e.node = value; }},
    Variable{
        "MOELINK_RANKS_PER_NODE",
        "pretend that every so many ranks are a node of their own (default 0: nodes are what they are)",
        [](Environment& e, const Variable& v, const std::string& value) { e.ranks_per_node = parse_count(v, value); }},
    Variable{"MOELINK_SECRET", "key that every rank must prove to know when ranks meet over TCP (default: none)",
             [](Environment& e, const Variable&, const std::string& value) { e.secret = value; }},
    Variable{"MOELINK_SOCKET_IFNAME", "network interface over which ranks meet, such as eth0 (default: any)",
             [](Environment& e, const Variable&, const std::string& value) { e.socket_interface = value; }},
    Variable{
        "MOELINK_PORT", "TCP port on which rank 0 listens (default 0: MASTER_PORT, see docs/bootstrap.md)",
        [](Environment& e, const Variable& v, const std::string& value) { e.port = parse_count(v, value, 65535); }},
    Variable{"MOELINK_SOCKET_DIR",
             "directory of the Unix sockets over which ranks of one node share memory (default /tmp/moelink-<uid>)",
             [](Environment& e, const Variable&, const std::string& value) { e.socket_directory = value; }},
    Variable{
        "MOELINK_NVLS", "0: never use multicast over NVLink (default 1)",
        [](Environment& e, const Variable& v, const std::string& value) { e.nvls = e.nvls && parse_switch(v, value); }},
    Variable{"NCCL_NVLS_ENABLE", "0: as MOELINK_NVLS=0; any other value is left to NCCL",
             [](Environment& e, const Variable&, const std::string& value) { e.nvls = e.nvls && value != "0"; }},
    Variable{"MOELINK_PACK", "0: no all-reduce by lines of 16 bytes, see docs/all-reduce.md (default 1)",
             [](Environment& e, const Variable& v, const std::string& value) { e.pack = parse_switch(v, value); }},
    Variable{"MOELINK_PUT", "transport of puts between nodes: loopback, verbs or ucx (default: the first that works)",
             [](Environment& e, const Variable&, const std::string& value) { e.put = value; }},
    Variable{"MOELINK_VERBS", "path of the verbs library for RDMA (default libibverbs.so.1)",
             [](Environment& e, const Variable&, const std::string& value) { e.verbs_library = value; }},
    Variable{"MOELINK_VERBS_DEVICES",
             "RDMA ports of this rank, such as mlx5_0:1,mlx5_1 (default: the active ones nearest to its device)",
             [](Environment& e, const Variable&, const std::string& value) { e.verbs_devices = value; }},
    Variable{
        "MOELINK_VERBS_GID", "index in the port's GID table (default: RoCE v2 and IPv4 first)",
        [](Environment& e, const Variable& v, const std::string& value) { e.verbs_gid_index = parse_count(v, value); }},
    Variable{"MOELINK_VERBS_SERVICE_LEVEL", "InfiniBand service level, or RoCE priority, 0 to 15 (default 0)",
             [](Environment& e, const Variable& v, const std::string& value) {
               e.verbs_service_level = parse_count(v, value, 15);
             }},
    Variable{"MOELINK_VERBS_TRAFFIC_CLASS", "traffic class of RoCE packets, 0 to 255 (default 0)",
             [](Environment& e, const Variable& v, const std::string& value) {
               e.verbs_traffic_class = parse_count(v, value, 255);
             }},
    Variable{
        "MOELINK_VERBS_TIMEOUT",
        "seconds until a put that nobody acknowledges is sent again, six times before it fails (default 0.067)",
        [](Environment& e, const Variable& v, const std::string& value) { e.verbs_timeout = parse_seconds(v, value); }},
    Variable{"MOELINK_VERBS_RELAXED_ORDERING", "0: payload writes of the NIC keep their order on PCIe (default 1)",
             [](Environment& e, const Variable& v, const std::string& value) {
               e.verbs_relaxed_ordering = parse_switch(v, value);
             }},
    Variable{"MOELINK_WARNINGS", "0: print no warnings to stderr (default 1)",
             [](Environment& e, const Variable& v, const std::string& value) { e.warnings = parse_switch(v, value); }},
};

std::string default_cache_directory(const Environment::Lookup& lookup) {
  // The XDG specification: a relative path is to be ignored.
  if (const auto xdg = lookup("XDG_CACHE_HOME"); xdg && xdg->starts_with('/')) {
    return *xdg + "/moelink";
  }
  const auto home = lookup("HOME");
  return home && home->starts_with('/') ? *home + "/.cache/moelink" : std::string();
}

}  // namespace

Environment Environment::read(const Lookup& lookup) {
  Environment environment;
  environment.cache_directory = default_cache_directory(lookup);
  for (const Variable& variable : kVariables) {
    // An empty value means unset: `MOELINK_CACHE= program` is how a shell undoes an export for one command.
    if (const auto value = lookup(variable.name.data()); value && !value->empty()) {
      variable.set(environment, variable, *value);
    }
  }
  return environment;
}

std::optional<std::string> Environment::process(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

const Environment& Environment::get() {
  static const Environment environment = read(&Environment::process);
  return environment;
}

void check_environment() { (void)Environment::get(); }

std::string describe_environment() {
  std::size_t width = 0;
  for (const Variable& variable : kVariables) {
    width = std::max(width, variable.name.size());
  }
  std::string text;
  for (const Variable& variable : kVariables) {
    text.append("  ").append(variable.name).append(width - variable.name.size() + 2, ' ').append(variable.help);
    text.push_back('\n');
  }
  return text;
}

}  // namespace moelink
