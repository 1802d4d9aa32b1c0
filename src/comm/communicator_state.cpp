#include "comm/communicator_state.hpp"

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/rank_identity.hpp"
#include "jit/sources.hpp"
#include "moelink/version.hpp"

namespace moelink {
namespace {

/// Ranks before this one whose node has the same identity.
int gather_local_rank(Bootstrap& bootstrap, std::string_view node, std::chrono::milliseconds deadline) {
  const std::string mine = describe_self(bootstrap.rank(), Device::host(), node).node_id;
  const auto parts = bootstrap.all_gather("communicator: nodes", bytes_of(mine), deadline);
  const auto end = parts.begin() + bootstrap.rank();
  return static_cast<int>(
      std::count_if(parts.begin(), end, [&](const Bytes& part) { return std::ranges::equal(part, bytes_of(mine)); }));
}

Device choose_device(Bootstrap& bootstrap, const DeviceChoice& choice, std::string_view node,
                     std::chrono::milliseconds deadline) {
  // Gathered whether this rank needs it or not: whether others do is not known here.
  const int counted = gather_local_rank(bootstrap, node, deadline);
  if (choice.device) {
    return *choice.device;
  }
  const int num_devices = Device::cuda_count();
  return num_devices > 0 ? Device::cuda(choice.local_rank.value_or(counted) % num_devices) : Device::host();
}

std::vector<RankInfo> gather_ranks(Bootstrap& bootstrap, Device device, const NodeChoice& node,
                                   std::chrono::milliseconds deadline) {
  Bytes self;
  agree_over_ranks(
      bootstrap, "communicator: device",
      [&] {
        RankInfo info = describe_self(bootstrap.rank(), device, node.name);
        if (node.ranks_per_node != 0) info.node_id += text(" part ", bootstrap.rank() / node.ranks_per_node);
        self = encode(info);
      },
      deadline);
  const auto parts = bootstrap.all_gather("communicator: ranks", self, deadline);
  std::vector<RankInfo> ranks;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    ranks.push_back(decode_rank_info(static_cast<int>(r), parts[r]));
  }
  number_nodes(ranks);
  return ranks;
}

std::vector<std::vector<Link>> gather_links(Bootstrap& bootstrap, const std::vector<RankInfo>& ranks,
                                            std::chrono::milliseconds deadline) {
  std::vector<Link> mine;
  agree_over_ranks(
      bootstrap, "communicator: peer access", [&] { mine = links_of(bootstrap.rank(), ranks); }, deadline);
  const auto parts = bootstrap.all_gather("communicator: links", std::as_bytes(std::span(mine)), deadline);
  std::vector<std::vector<Link>> links;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].size() != ranks.size()) {
      throw Error(ErrorCode::peer, text("rank ", r, " described ", parts[r].size(), " links, expected ", ranks.size()));
    }
    auto& row = links.emplace_back();
    for (const std::byte link : parts[r]) {
      row.push_back(static_cast<Link>(std::min(std::to_integer<int>(link), static_cast<int>(Link::none))));
    }
  }
  return links;
}

}  // namespace

std::shared_ptr<Communicator::State> make_communicator_state(std::unique_ptr<Bootstrap> bootstrap,
                                                             const DeviceChoice& choice, const NodeChoice& node,
                                                             std::chrono::milliseconds deadline) {
  compare_over_ranks(*bootstrap, "communicator",
                     {{"moelink version", MOELINK_VERSION},
                      {"kernel and protocol sources", embedded_sources().hash},
                      {"ranks per node", std::to_string(node.ranks_per_node)}},
                     deadline);
  const Device device = choose_device(*bootstrap, choice, node.name, deadline);
  auto ranks = gather_ranks(*bootstrap, device, node, deadline);
  auto links = gather_links(*bootstrap, ranks, deadline);
  return std::make_shared<Communicator::State>(
      Communicator::State{std::move(bootstrap), device, deadline, Topology(std::move(ranks), std::move(links))});
}

NodeChoice effective_node(int ranks_per_node) {
  if (ranks_per_node < 0) {
    throw Error(ErrorCode::invalid_argument,
                text("ranks_per_node is ", ranks_per_node, "; pass how many ranks shall be a node, or 0"));
  }
  const Environment& environment = Environment::get();
  return {.name = environment.node,
          .ranks_per_node = ranks_per_node != 0 ? ranks_per_node : environment.ranks_per_node};
}

std::chrono::milliseconds effective_deadline(std::chrono::milliseconds chosen) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);  // travels as 32 bits of milliseconds
  if (chosen.count() < 0 || chosen > kLongest) {
    throw Error(ErrorCode::invalid_argument,
                text("a deadline of ", chosen.count(), " ms; pass one of 1 ms to 24 hours, or 0 for the default"));
  }
  return chosen.count() > 0 ? chosen : Environment::get().deadline;
}

}  // namespace moelink
