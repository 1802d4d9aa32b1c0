#include "exchange/modes/mode_choice.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

[[noreturn]] void cannot(const std::string& sentence) { throw Error(ErrorCode::unsupported, sentence); }

/// The first two ranks of which one cannot map the other's memory; the same node or not.
std::optional<std::pair<int, int>> find_strangers(const Topology& topology) {
  for (int from = 0; from < topology.size(); ++from) {
    for (int to = 0; to < topology.size(); ++to) {
      if (topology.node_of(from) != topology.node_of(to) || !topology.can_map(from, to)) return {{from, to}};
    }
  }
  return std::nullopt;
}

void check_one_node(Mode mode, const Topology& topology, const char* remedy) {
  if (topology.num_nodes() != 1) {
    cannot(text("ExchangeConfig::mode is ", name_of(mode), ", which works inside one node, but the ranks are on ",
                topology.num_nodes(), " nodes; ", remedy));
  }
  if (const auto strangers = find_strangers(topology)) {
    cannot(text("ExchangeConfig::mode is ", name_of(mode), ", but rank ", strangers->first,
                " cannot map the memory of rank ", strangers->second, "; ", remedy));
  }
}

}  // namespace

Mode choose_mode(const ExchangeConfig& config, const Topology& topology) {
  Mode mode = config.mode;
  if (mode == Mode::automatic) {
    mode = topology.size() == 1                       ? Mode::local
           : config.replicated_inputs                 ? Mode::tensor_parallel
           : find_strangers(topology) == std::nullopt ? Mode::nvlink
                                                      : Mode::p2p;
  }
  switch (mode) {
    case Mode::local:
      if (topology.size() != 1) {
        throw Error(ErrorCode::invalid_argument,
                    text("ExchangeConfig::mode is local, which has all experts on one rank, but the communicator has ",
                         topology.size(), "; use Communicator::single(), or leave the choice to `automatic`"));
      }
      return mode;
    case Mode::tensor_parallel:
      check_one_node(mode, topology, "give every node an Exchange of its own");
      return mode;
    case Mode::nvlink:
      check_one_node(mode, topology, "leave the choice to `automatic`");
      return mode;
    case Mode::p2p:
      return mode;
    case Mode::automatic:
      break;
  }
  throw Error(ErrorCode::invalid_argument,
              text("ExchangeConfig::mode is ", static_cast<int>(config.mode), ", which is no Mode"));
}

std::vector<int> nodes_of_ranks(const Topology& topology) {
  const int size = topology.size();
  std::vector<bool> is_whole(static_cast<std::size_t>(topology.num_nodes()), true);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const int node = topology.node_of(from);
      if (node == topology.node_of(to) && !topology.can_map(from, to)) is_whole[static_cast<std::size_t>(node)] = false;
    }
  }
  std::vector<int> nodes;
  for (int rank = 0; rank < size; ++rank) {
    const int node = topology.node_of(rank);
    nodes.push_back(is_whole[static_cast<std::size_t>(node)] ? node : topology.num_nodes() + rank);
  }
  const bool is_one = std::ranges::all_of(nodes, [&](int node) { return node == nodes.front(); });
  return is_one ? std::vector<int>{} : nodes;
}

}  // namespace moelink
