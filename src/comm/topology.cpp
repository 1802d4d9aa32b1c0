#include "moelink/topology.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

using Row = std::vector<std::string>;

/// Columns as wide as their widest cell, two spaces between.
std::string format_table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line.append(row[c]).append(widths[c] - row[c].size() + 2, ' ');
    }
    text.append(line, 0, line.find_last_not_of(' ') + 1).push_back('\n');
  }
  return text;
}

}  // namespace

std::string_view name_of(Link link) noexcept {
  constexpr std::array<std::string_view, 8> kNames = {"self",   "process", "shared", "same-gpu",
                                                      "nvlink", "pcie",    "hidden", "none"};
  const auto index = static_cast<std::size_t>(link);
  return index < kNames.size() ? kNames[index] : "unknown";
}

Topology::Topology(std::vector<RankInfo> ranks, std::vector<std::vector<Link>> links)
    : ranks_(std::move(ranks)), links_(std::move(links)) {
  const auto is_short = [&](const std::vector<Link>& row) { return row.size() != ranks_.size(); };
  if (links_.size() != ranks_.size() || std::any_of(links_.begin(), links_.end(), is_short)) {
    throw Error(ErrorCode::invalid_argument, text("the links of a Topology are not a square of ", ranks_.size(), " by ",
                                                  ranks_.size(), "; give the link of every rank to every rank"));
  }
  for (const RankInfo& info : ranks_) {
    num_nodes_ = std::max(num_nodes_, info.node + 1);
  }
}

const RankInfo& Topology::rank(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::invalid_argument,
                text("rank ", rank, " does not exist; this group has ranks 0 to ", size() - 1));
  }
  return ranks_[static_cast<std::size_t>(rank)];
}

std::vector<int> Topology::ranks_of_node(int node) const {
  std::vector<int> members;
  for (const RankInfo& info : ranks_) {
    if (info.node == node) {
      members.push_back(info.rank);
    }
  }
  return members;
}

bool Topology::same_process(int a, int b) const { return rank(a).process_token == rank(b).process_token; }

Link Topology::link(int from, int to) const {
  (void)rank(from);
  (void)rank(to);
  return links_[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

std::string Topology::to_string() const {
  std::vector<Row> ranks = {{"rank", "node", "host", "process", "device", "what", "pci"}};
  std::vector<Row> links = {{"from\\to"}};
  for (const RankInfo& info : ranks_) {
    ranks.push_back({std::to_string(info.rank), std::to_string(info.node), info.host, std::to_string(info.process_id),
                     info.device.name(), info.device_name, info.pci_bus_id.empty() ? "-" : info.pci_bus_id});
    links.front().push_back(std::to_string(info.rank));
    Row row = {std::to_string(info.rank)};
    for (const RankInfo& peer : ranks_) {
      row.emplace_back(name_of(link(info.rank, peer.rank)));
    }
    links.push_back(std::move(row));
  }
  return text(format_table(ranks), "\n", format_table(links));
}

}  // namespace moelink
