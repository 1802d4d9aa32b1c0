#include "comm/communicator_state.hpp"

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/rank_identity.hpp"
#include "moelink/version.hpp"

namespace moelink {
namespace {

std::vector<RankInfo> gather_ranks(Bootstrap& bootstrap, Device device, std::string_view node,
                                   std::chrono::milliseconds deadline) {
  Bytes self;
  agree_over_ranks(
      bootstrap, "communicator: device", [&] { self = encode(describe_self(bootstrap.rank(), device, node)); },
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

std::shared_ptr<Communicator::State> make_communicator_state(std::unique_ptr<Bootstrap> bootstrap, Device device,
                                                             std::string_view node,
                                                             std::chrono::milliseconds deadline) {
  compare_over_ranks(*bootstrap, "communicator", {{"moelink version", MOELINK_VERSION}}, deadline);
  auto ranks = gather_ranks(*bootstrap, device, node, deadline);
  auto links = gather_links(*bootstrap, ranks, deadline);
  return std::make_shared<Communicator::State>(
      Communicator::State{std::move(bootstrap), device, deadline, Topology(std::move(ranks), std::move(links))});
}

std::chrono::milliseconds effective_deadline(std::chrono::milliseconds chosen) {
  if (chosen.count() < 0) {
    throw Error(ErrorCode::invalid_argument, text("a deadline of ", chosen.count(),
                                                  " ms is in the past; pass a positive one, or 0 for the default"));
  }
  return chosen.count() > 0 ? chosen : Environment::get().deadline;
}

}  // namespace moelink
