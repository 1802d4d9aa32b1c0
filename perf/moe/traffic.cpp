#include "perf/moe/traffic.hpp"

#include <algorithm>
#include <vector>

#include "perf/reference/row_plan.hpp"

namespace moelink::perf {
namespace {

/// Rows that one rank has to do with.
struct RankRows {
  std::int64_t own = 0;         ///< tokens it passes
  std::int64_t kept = 0;        ///< rows of its experts
  std::int64_t sent = 0;        ///< tokens that it sends to other ranks
  std::int64_t received = 0;    ///< tokens that other ranks send it
  std::int64_t arrived = 0;     ///< tokens with an expert here, own ones too
  std::int64_t parts_sent = 0;  ///< parts of sums
  std::int64_t parts_received = 0;
  std::int64_t results_sent = 0;  ///< finished sums, to the others of the group
  std::int64_t results_received = 0;
};

/// The ranks that own an expert of a token, each once.
std::vector<int> destinations(const Sources& sources, const Placement& placement, int source, std::int64_t token) {
  const Routing& routing = sources[source];
  std::vector<int> ranks;
  for (std::int64_t entry = token * routing.top_k; entry < (token + 1) * routing.top_k; ++entry) {
    const std::int64_t id = routing.expert_ids[static_cast<std::size_t>(entry)];
    if (id < 0 || id >= routing.num_experts) continue;
    const int rank = placement.owner_of(placement.physical_expert(source, token, id));
    if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<RankRows> rows_of_ranks(const Sources& sources, const Placement& placement, std::int64_t capacity) {
  std::vector<RankRows> ranks(static_cast<std::size_t>(placement.num_ranks));
  const auto at = [&](int rank) -> RankRows& { return ranks[static_cast<std::size_t>(rank)]; };
  const std::vector<std::int64_t> entries = entries_per_expert(sources, placement);
  for (std::int64_t expert = 0; expert < placement.num_experts; ++expert) {
    at(placement.owner_of(expert)).kept += std::min(entries[static_cast<std::size_t>(expert)], capacity);
  }
  const int group = placement.ranks_per_source;
  for (int source = 0; source < sources.size(); ++source) {
    for (int member = 0; member < group; ++member) at(source * group + member).own = sources[source].num_tokens;
    for (std::int64_t token = 0; token < sources[source].num_tokens; ++token) {
      const int home = source * group + static_cast<int>(token % group);
      for (const int rank : destinations(sources, placement, source, token)) {
        ++at(rank).arrived;
        if (placement.source_of(rank) != source) {
          ++at(home).sent;
          ++at(rank).received;
        }
        if (rank != home) {
          ++at(rank).parts_sent;
          ++at(home).parts_received;
        }
      }
      at(home).results_sent += group - 1;
      for (int member = 0; member < group; ++member) {
        at(source * group + member).results_received += source * group + member == home ? 0 : 1;
      }
    }
  }
  return ranks;
}

MoeTraffic traffic_of_rank(Mode mode, const RankRows& rows, int num_ranks, const RowBytes& bytes) {
  MoeTraffic traffic;
  traffic.dispatch.logical = rows.kept * bytes.token;
  traffic.combine.logical = rows.kept * bytes.expert_output;
  const std::int64_t outputs = rows.own * bytes.output;
  if (mode == Mode::tensor_parallel) {
    const std::int64_t exchanged = 2 * (num_ranks - 1) * outputs / num_ranks;
    traffic.combine.wire = exchanged;
    traffic.dispatch.moved = rows.arrived * bytes.input + rows.kept * bytes.token;
    traffic.combine.moved = traffic.combine.logical + 2 * exchanged + outputs;
    return traffic;
  }
  // What comes from others is written by them and read here; what is read to be sent is read once, wherever it goes.
  traffic.dispatch.wire = std::max(rows.sent, rows.received) * bytes.token;
  traffic.dispatch.moved = rows.own * bytes.input + (2 * rows.received + rows.kept) * bytes.token;
  const std::int64_t sent = rows.parts_sent * bytes.part + rows.results_sent * bytes.output;
  const std::int64_t received = rows.parts_received * bytes.part + rows.results_received * bytes.output;
  traffic.combine.wire = mode == Mode::local ? 0 : std::max(sent, received);
  traffic.combine.moved = traffic.combine.logical + 2 * received + outputs;
  return traffic;
}

void keep_larger(PhaseTraffic& most, const PhaseTraffic& other) {
  most.logical = std::max(most.logical, other.logical);
  most.wire = std::max(most.wire, other.wire);
  most.moved = std::max(most.moved, other.moved);
}

}  // namespace

MoeTraffic traffic_of(Mode mode, const Sources& sources, const Placement& placement, std::int64_t capacity,
                      const RowBytes& bytes) {
  MoeTraffic most;
  for (const RankRows& rows : rows_of_ranks(sources, placement, capacity)) {
    const MoeTraffic traffic = traffic_of_rank(mode, rows, placement.num_ranks, bytes);
    keep_larger(most.dispatch, traffic.dispatch);
    keep_larger(most.combine, traffic.combine);
  }
  return most;
}

}  // namespace moelink::perf
