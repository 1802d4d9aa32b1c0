#include "perf/common/ranks.hpp"

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>

#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

/// The devices that --device names, for ranks to take in turn; empty: the host.
std::vector<int> devices_of(const PlaceFlags& place) {
  const Device device = place.device();
  if (device.is_host()) return {};
  if (place.device_name.find(':') != std::string::npos) return {device.ordinal()};
  std::vector<int> all(static_cast<std::size_t>(Device::cuda_count()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Communicator join_launched_group(const RankFlags& ranks, const PlaceFlags& place) {
  CommunicatorOptions options{.ranks_per_node = ranks.ranks_per_node};
  const bool one_device = place.device_name.find(':') != std::string::npos;
  if (place.device().is_host() || one_device) options.device = place.device();
  return Communicator::from_environment(options);
}

}  // namespace

void add_rank_flags(CLI::App& app, RankFlags& flags) {
  app.add_option("--ranks", flags.num_ranks,
                 "ranks as threads of this process; 0: one rank of the launcher's group (mpirun, torchrun, Slurm)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group("Place");
  app.add_option("--ranks-per-node", flags.ranks_per_node,
                 "pretend that every so many ranks are a node, between which puts go; 0: nodes are what they are")
      ->envname("MOELINK_RANKS_PER_NODE")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group("Place");
}

void run_on_ranks(const RankFlags& ranks, const PlaceFlags& place,
                  const std::function<void(const Communicator&)>& body) {
  if (ranks.num_ranks == 0) {
    const Communicator communicator = join_launched_group(ranks, place);
    try {
      body(communicator);
    } catch (const UsageError&) {  // every rank finds it for itself
      throw;
    } catch (const std::exception& error) {  // the others would wait for what this rank does no more
      communicator.abort(error.what());
      throw;
    }
    return;
  }
  const InProcessOptions options{.devices = devices_of(place), .ranks_per_node = ranks.ranks_per_node};
  on_every_rank(Communicator::in_process(ranks.num_ranks, options), body);
}

int threads_of_rank(const Communicator& communicator, const PlaceFlags& place) {
  if (place.threads != 0) return place.threads;
  const Topology& topology = communicator.topology();
  const auto ranks = static_cast<int>(topology.ranks_of_node(topology.node_of(communicator.rank())).size());
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
}

std::vector<double> slowest_of_ranks(const Communicator& communicator, const std::vector<double>& mine) {
  std::vector<double> slowest(mine.size(), 0.0);
  for (const std::vector<std::byte>& part : communicator.all_gather(std::as_bytes(std::span(mine)))) {
    for (std::size_t i = 0; i < mine.size() && (i + 1) * sizeof(double) <= part.size(); ++i) {
      double value = 0;
      std::memcpy(&value, part.data() + i * sizeof(double), sizeof(double));
      slowest[i] = std::max(slowest[i], value);
    }
  }
  return slowest;
}

namespace {

template <class T>
T sum_of(const Communicator& communicator, T mine) {
  T sum = 0;
  for (const std::vector<std::byte>& part : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    T value = 0;
    std::memcpy(&value, part.data(), std::min(part.size(), sizeof(value)));
    sum += value;
  }
  return sum;
}

}  // namespace

std::int64_t sum_over_ranks(const Communicator& communicator, std::int64_t mine) { return sum_of(communicator, mine); }

double sum_over_ranks(const Communicator& communicator, double mine) { return sum_of(communicator, mine); }

}  // namespace moelink::perf
