#include "perf/moe/all_to_all.hpp"

#include <algorithm>
#include <cstring>

#include "perf/common/host_piece.hpp"
#include "perf/moe/local_twin.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kTokensPerPiece = 512;  // of which a thread finds ranks, or copies ids and weights
constexpr std::int64_t kAlignment = 16;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Tokens that leave this rank, counted once for each destination, and tokens that arrive here.
struct Totals {
  explicit Totals(const MoeCase& moe) {
    for (int source = 0; source < moe.sources->size(); ++source) {
      for (std::int64_t token = 0; token < (*moe.sources)[source].num_tokens; ++token) {
        const std::vector<std::int32_t> ranks = ranks_of_token(moe, source, token);
        arrived += std::ranges::count(ranks, moe.plan->rank);
        sent += source == moe.source() ? static_cast<std::int64_t>(ranks.size()) : 0;
      }
    }
  }
  std::int64_t sent = 0;
  std::int64_t arrived = 0;
};

}  // namespace

AllToAll::AllToAll(const MoeSets& sets, Collectives& collectives, StreamView stream, Team& team)
    : sets_(sets), collectives_(collectives), stream_(stream), team_(team) {
  const Placement& placement = *sets.front()->moe().placement;
  for (std::int64_t expert = 0; expert < placement.num_experts; ++expert) {
    owner_of_expert_.push_back(placement.owner_of(expert));
  }
  for (const auto& set : sets) locals_.push_back(make_local(*set));
}

AllToAll::Local AllToAll::make_local(const MoeSet& set) const {
  const MoeCase& moe = set.moe();
  const Device device = stream_.device();
  const Totals totals(moe);
  const std::int64_t num_tokens = moe.own_tokens().rows;
  const std::int64_t row_bytes = moe.own_tokens().row_bytes;
  const std::int64_t message_bytes =
      aligned(row_bytes) + aligned(moe.sources->top_k() * std::int64_t{sizeof(std::int32_t) + sizeof(float)});
  const std::int64_t out_row_bytes = set.output().row_bytes();
  // Buffers hold a row at least, so that shapes stay legal without tokens.
  const std::int64_t num_sent = std::max<std::int64_t>(totals.sent, 1);
  const std::int64_t num_arrived = std::max<std::int64_t>(totals.arrived, 1);
  const auto num_ranks = static_cast<std::size_t>(moe.placement->num_ranks);

  Local local{.packer = Exchange(Communicator::single(device), packer_config(set, num_tokens, num_sent)),
              .placer = Exchange(Communicator::single(device), twin_config(set, num_arrived)),
              .ranks_of_tokens = std::vector<std::int32_t>(
                  static_cast<std::size_t>(std::max<std::int64_t>(num_tokens, 1) * most_ranks_of(moe))),
              .packed = rows_buffer(device, num_sent, message_bytes),
              .arrived = rows_buffer(device, num_arrived, message_bytes),
              .row_bytes = row_bytes,
              .message_bytes = message_bytes,
              .ids = std::vector<std::int32_t>(static_cast<std::size_t>(num_arrived * moe.sources->top_k())),
              .weights = std::vector<float>(static_cast<std::size_t>(num_arrived * moe.sources->top_k())),
              .parts = rows_buffer(device, num_arrived, out_row_bytes),
              .parts_home = rows_buffer(device, num_sent, out_row_bytes),
              .output = rows_buffer(device, num_tokens, out_row_bytes),
              .sent = {std::vector<std::int64_t>(num_ranks)},
              .received = {std::vector<std::int64_t>(num_ranks)},
              .pack = {},
              .place = set.dispatch_args(),
              .sum_parts = set.combine_args(),
              .sum_home = {}};
  const MatrixView tokens = set.dispatch_args().tokens;
  const DataType computed = set.output().type;
  local.pack = {.tokens = tokens,
                .expert_ids = {local.ranks_of_tokens.data(), IndexType::int32},
                .weight_mode = WeightMode::none,
                .rows = {local.packed.data(), tokens.type, num_sent, tokens.columns, message_bytes}};
  local.place.tokens = {local.arrived.data(), tokens.type, 0, tokens.columns, message_bytes};
  local.place.expert_ids = {local.ids.data(), IndexType::int32};
  local.place.weights = local.weights.data();
  local.sum_parts.output = {local.parts.data(), computed, 0, moe.hidden};
  local.sum_home = {.expert_output = {local.parts_home.data(), computed, num_sent, moe.hidden},
                    .output = {local.output.data(), computed, num_tokens, moe.hidden}};
  return local;
}

/// The ranks that own experts of each own token, each once.
void AllToAll::find_ranks(const MoeCase& moe, Local& local) const {
  const Routing& routing = moe.routing();
  const int most_ranks = most_ranks_of(moe);
  team_.for_ranges(routing.num_tokens, kTokensPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      std::int32_t* const ranks = local.ranks_of_tokens.data() + token * most_ranks;
      const std::int64_t* const ids = routing.expert_ids.data() + token * routing.top_k;
      int count = 0;
      for (int k = 0; k < routing.top_k; ++k) {
        const std::int32_t rank = owner_of_expert_[static_cast<std::size_t>(ids[k])];
        if (std::find(ranks, ranks + count, rank) == ranks + count) ranks[count++] = rank;
      }
      // In the order of ranks, which is the order in which parts of the sum are added.
      std::sort(ranks, ranks + count);
      std::fill(ranks + count, ranks + most_ranks, -1);
    }
  });
}

/// Behind each packed row the experts and weights of its token.
void AllToAll::write_routing(const MoeCase& moe, const ExpertBatch& packed, Local& local) const {
  const Routing& routing = moe.routing();
  const auto top_k = static_cast<std::size_t>(routing.top_k);
  const int most_ranks = most_ranks_of(moe);
  team_.for_ranges(local.sent.total(), kTokensPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto first = static_cast<std::size_t>(packed.source_of_row[row] / most_ranks) * top_k;
      std::byte* const behind = local.packed.as<std::byte>() + row * local.message_bytes + aligned(local.row_bytes);
      auto* const ids = reinterpret_cast<std::int32_t*>(behind);
      for (std::size_t k = 0; k < top_k; ++k) ids[k] = static_cast<std::int32_t>(routing.expert_ids[first + k]);
      std::memcpy(ids + top_k, routing.weights.data() + first, top_k * sizeof(float));
    }
  });
}

/// The experts and weights of what has arrived; experts of other ranks become -1.
void AllToAll::read_routing(const MoeCase& moe, Local& local) const {
  const auto first_expert = static_cast<std::int32_t>(moe.placement->first_expert(moe.plan->rank));
  const auto num_experts = static_cast<std::int32_t>(moe.placement->num_experts_of(moe.plan->rank));
  const auto top_k = static_cast<std::size_t>(moe.sources->top_k());
  team_.for_ranges(local.received.total(), kTokensPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::byte* const behind =
          local.arrived.as<std::byte>() + row * local.message_bytes + aligned(local.row_bytes);
      const auto* const ids = reinterpret_cast<const std::int32_t*>(behind);
      const std::size_t first = static_cast<std::size_t>(row) * top_k;
      for (std::size_t k = 0; k < top_k; ++k) {
        const std::int32_t expert = ids[k] - first_expert;
        local.ids[first + k] = expert >= 0 && expert < num_experts ? expert : -1;
      }
      std::memcpy(local.weights.data() + first, ids + top_k, top_k * sizeof(float));
    }
  });
}

void AllToAll::dispatch(std::size_t set) {
  const MoeCase& moe = sets_[set]->moe();
  Local& local = locals_[set];
  find_ranks(moe, local);
  const ExpertBatch packed = local.packer.dispatch(local.pack, stream_);
  stream_.synchronize();
  local.sent.counts.assign(packed.counts, packed.counts + moe.placement->num_ranks);
  write_routing(moe, packed, local);
  collectives_.all_to_all(local.sent.counts.data(), local.received.counts.data(), sizeof(std::int64_t));
  collectives_.exchange(local.packed.data(), local.sent, local.arrived.data(), local.received, local.message_bytes);
  read_routing(moe, local);
  local.place.tokens.rows = local.received.total();
  local.placer.dispatch(local.place, stream_);
}

void AllToAll::combine(std::size_t set) {
  Local& local = locals_[set];
  local.sum_parts.output.rows = local.received.total();
  local.placer.combine(local.sum_parts, stream_);
  collectives_.exchange(local.parts.data(), local.received, local.parts_home.data(), local.sent,
                        local.sum_parts.output.row_bytes());
  local.packer.combine(local.sum_home, stream_);
}

void AllToAll::check_combine(std::size_t set, Team& team, Mismatches& mismatches) {
  MoeCase moe = sets_[set]->moe();
  moe.rounded_parts = true;
  const MutableMatrixView& output = locals_[set].sum_home.output;
  HostPiece piece(output.data, output.rows * output.row_bytes(), stream_);
  check_output(moe, 0, output.rows, piece.data(), team, mismatches);
}

}  // namespace moelink::perf
