#include "perf/moe/send_receive.hpp"

#include <algorithm>

#include "perf/common/host_piece.hpp"
#include "perf/moe/local_twin.hpp"

namespace moelink::perf {
namespace {

/// Tokens of other ranks, and own ones, that have an expert here: by source, then by token.
struct Arrivals {
  explicit Arrivals(const MoeCase& moe) {
    for (int source = 0; source < moe.sources->size(); ++source) {
      const Routing& routing = (*moe.sources)[source];
      received.counts.push_back(0);
      for (std::int64_t token = 0; token < routing.num_tokens; ++token) {
        if (!std::ranges::binary_search(ranks_of_token(moe, source, token), moe.plan->rank)) continue;
        ++received.counts.back();
        for (std::int64_t entry = token * routing.top_k; entry < (token + 1) * routing.top_k; ++entry) {
          ids.push_back(local_expert_of(moe, source, entry));
          weights.push_back(routing.weights[static_cast<std::size_t>(entry)]);
        }
      }
    }
  }

  RankRows received;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

/// The ranks that each own token goes to, [tokens, most_ranks], -1 behind the last.
struct Departures {
  explicit Departures(const MoeCase& moe)
      : most_ranks(most_ranks_of(moe)),
        sent{std::vector<std::int64_t>(static_cast<std::size_t>(moe.placement->num_ranks), 0)} {
    for (std::int64_t token = 0; token < moe.own_tokens().rows; ++token) {
      const std::vector<std::int32_t> of_token = ranks_of_token(moe, moe.source(), token);
      for (const std::int32_t rank : of_token) ++sent.counts[static_cast<std::size_t>(rank)];
      ranks.insert(ranks.end(), of_token.begin(), of_token.end());
      ranks.resize(static_cast<std::size_t>((token + 1) * most_ranks), -1);
    }
  }

  int most_ranks;
  RankRows sent;
  std::vector<std::int32_t> ranks;
};

}  // namespace

SendReceive::SendReceive(const MoeSets& sets, Collectives& collectives, StreamView stream)
    : sets_(sets), collectives_(collectives), stream_(stream) {
  for (const auto& set : sets) locals_.push_back(make_local(*set));
}

SendReceive::Local SendReceive::make_local(const MoeSet& set) const {
  const MoeCase& moe = set.moe();
  const Device device = stream_.device();
  const Arrivals arrivals(moe);
  const Departures departures(moe);
  const std::int64_t num_tokens = moe.own_tokens().rows;
  const std::int64_t row_bytes = moe.own_tokens().row_bytes;
  const std::int64_t out_row_bytes = set.output().row_bytes();
  // Buffers hold a row at least, so that shapes stay legal without tokens.
  const std::int64_t num_sent = std::max<std::int64_t>(departures.sent.total(), 1);
  const std::int64_t num_arrived = std::max<std::int64_t>(arrivals.received.total(), 1);

  Local local{.packer = Exchange(Communicator::single(device), packer_config(set, num_tokens, num_sent)),
              .placer = Exchange(Communicator::single(device), twin_config(set, num_arrived)),
              .ranks_of_tokens = uploaded(departures.ranks, stream_),
              .packed = rows_buffer(device, num_sent, row_bytes),
              .arrived = rows_buffer(device, num_arrived, row_bytes),
              .ids = uploaded(arrivals.ids, stream_),
              .weights = uploaded(arrivals.weights, stream_),
              .parts = rows_buffer(device, num_arrived, out_row_bytes),
              .parts_home = rows_buffer(device, num_sent, out_row_bytes),
              .output = rows_buffer(device, num_tokens, out_row_bytes),
              .sent = departures.sent,
              .received = arrivals.received,
              .pack = {},
              .place = set.dispatch_args(),
              .sum_parts = set.combine_args(),
              .sum_home = {}};
  const MatrixView tokens = set.dispatch_args().tokens;
  const DataType computed = set.output().type;
  local.pack = {.tokens = tokens,
                .expert_ids = {local.ranks_of_tokens.data(), IndexType::int32},
                .weight_mode = WeightMode::none,
                .rows = {local.packed.data(), tokens.type, num_sent, tokens.columns}};
  local.place.tokens = {local.arrived.data(), tokens.type, arrivals.received.total(), tokens.columns};
  local.place.expert_ids = {local.ids.data(), IndexType::int32};
  local.place.weights = local.weights.as<float>();
  local.sum_parts.output = {local.parts.data(), computed, arrivals.received.total(), moe.hidden};
  local.sum_home = {.expert_output = {local.parts_home.data(), computed, num_sent, moe.hidden},
                    .output = {local.output.data(), computed, num_tokens, moe.hidden}};
  return local;
}

void SendReceive::dispatch(std::size_t set) {
  Local& local = locals_[set];
  local.packer.dispatch(local.pack, stream_);
  collectives_.exchange(local.packed.data(), local.sent, local.arrived.data(), local.received,
                        local.place.tokens.row_bytes());
  local.placer.dispatch(local.place, stream_);
}

void SendReceive::combine(std::size_t set) {
  Local& local = locals_[set];
  local.placer.combine(local.sum_parts, stream_);
  collectives_.exchange(local.parts.data(), local.received, local.parts_home.data(), local.sent,
                        local.sum_parts.output.row_bytes());
  local.packer.combine(local.sum_home, stream_);
}

void SendReceive::check_combine(std::size_t set, Team& team, Mismatches& mismatches) {
  MoeCase moe = sets_[set]->moe();
  moe.rounded_parts = true;
  const MutableMatrixView& output = locals_[set].sum_home.output;
  HostPiece piece(output.data, output.rows * output.row_bytes(), stream_);
  check_output(moe, 0, output.rows, piece.data(), team, mismatches);
}

}  // namespace moelink::perf
