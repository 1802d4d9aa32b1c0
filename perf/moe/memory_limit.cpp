#include "perf/moe/memory_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <span>
#include <vector>

#if MOELINK_PERF_HAVE_CEILINGS
#include "perf/ceiling/row_kernels.hpp"
#endif

namespace moelink::perf {
namespace {

constexpr double kUsableFraction = 0.9;  // the rest is for the library's caches, the limits' copies, and others

/// One number in a file of the control group; none: no such limit.
std::optional<std::int64_t> number_in(const char* path) {
  std::int64_t value = 0;
  return std::ifstream(path) >> value ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> available_host_bytes() {
  std::optional<std::int64_t> available;
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == "MemAvailable:") available = kilobytes * 1024;
  }
  const auto most = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (available && most && used) available = std::clamp<std::int64_t>(*most - *used, 0, *available);
  return available;
}

struct Share {
  std::int64_t set_bytes;
  std::int64_t available;  // -1: unknown
};

std::vector<Share> gather(const Communicator& communicator, Share mine) {
  std::vector<Share> all;
  for (const auto& bytes : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Share));
  }
  return all;
}

/// Equal for ranks that share memory.
std::string place_of(const RankInfo& rank) { return fmt::format("{} {}", rank.node, rank.uuid); }

}  // namespace

std::optional<std::int64_t> available_bytes(Device device) {
  if (device.is_host()) return available_host_bytes();
#if MOELINK_PERF_HAVE_CEILINGS
  return free_memory_bytes(device.ordinal());
#else
  return std::nullopt;
#endif
}

std::optional<MemoryLimit> memory_limit(const Communicator& communicator, std::int64_t my_set_bytes) {
  const std::vector<Share> shares = gather(
      communicator, {.set_bytes = my_set_bytes, .available = available_bytes(communicator.device()).value_or(-1)});
  std::map<std::string, MemoryLimit> places;
  for (const RankInfo& rank : communicator.topology().ranks()) {
    const Share& share = shares[static_cast<std::size_t>(rank.rank)];
    if (share.available < 0) return std::nullopt;
    auto [place, is_new] = places.try_emplace(
        place_of(rank), MemoryLimit{.available_bytes = share.available, .device = rank.device.name(), .num_ranks = 0});
    MemoryLimit& limit = place->second;
    limit.available_bytes = std::min(limit.available_bytes, share.available);
    limit.set_bytes += share.set_bytes;
    ++limit.num_ranks;
  }
  std::optional<MemoryLimit> tightest;
  for (auto& [place, limit] : places) {
    const double usable = kUsableFraction * static_cast<double>(limit.available_bytes);
    limit.most_sets =
        static_cast<std::int64_t>(usable / static_cast<double>(std::max<std::int64_t>(limit.set_bytes, 1)));
    if (!tightest || limit.most_sets < tightest->most_sets) tightest = limit;
  }
  return tightest;
}

std::string text_of_bytes(std::int64_t bytes) {
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6)
                               : fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace moelink::perf
