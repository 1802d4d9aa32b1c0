#include "perf/moe/all_gather.hpp"

#include <algorithm>

#include "perf/common/host_piece.hpp"
#include "perf/moe/local_twin.hpp"
#include "perf/reference/element.hpp"

namespace moelink::perf {
namespace {

std::int64_t most_tokens(const MoeCase& moe) {
  std::int64_t most = 1;
  for (const RandomMatrix& tokens : moe.tokens) most = std::max(most, tokens.rows);
  return most;
}

/// Entries of one source, `value(entry)` each, padded to as many as the largest source has.
template <class T, class Value>
void append_padded(std::vector<T>& to, const Routing& routing, std::int64_t padded_tokens, T pad, Value&& value) {
  const std::int64_t entries = routing.num_tokens * routing.top_k;
  for (std::int64_t entry = 0; entry < entries; ++entry) to.push_back(value(entry));
  to.resize(to.size() + static_cast<std::size_t>(padded_tokens * routing.top_k - entries), pad);
}

}  // namespace

DataType AllGather::type_of_sums(const MoeSettings& settings) {
  return settings.device.is_host() ? DataType::float32 : settings.computed();
}

AllGather::AllGather(const MoeSettings& settings, const MoeSets& sets, Collectives& collectives, StreamView stream,
                     Team& team)
    : settings_(settings),
      sets_(sets),
      collectives_(collectives),
      stream_(stream),
      team_(team),
      reduced_(type_of_sums(settings)) {
  for (const auto& set : sets) locals_.push_back(make_local(*set));
}

AllGather::Local AllGather::make_local(const MoeSet& set) {
  const MoeCase& moe = set.moe();
  const std::int64_t padded = most_tokens(moe);
  const std::int64_t all = padded * settings_.num_ranks;
  const std::int64_t row_bytes = moe.own_tokens().row_bytes;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  for (int source = 0; source < moe.sources->size(); ++source) {
    const Routing& routing = (*moe.sources)[source];
    append_padded(ids, routing, padded, -1, [&](std::int64_t entry) { return local_expert_of(moe, source, entry); });
    append_padded(weights, routing, padded, 0.0F,
                  [&](std::int64_t entry) { return routing.weights[static_cast<std::size_t>(entry)]; });
  }
  ExchangeConfig config = twin_config(set, all);
  config.combine_types = {{.expert_output = settings_.computed(), .output = reduced_}};
  const auto bytes_of = [&](std::int64_t tokens, DataType type) {
    return static_cast<std::size_t>(tokens * moe.hidden) * size_of(type);
  };
  const std::size_t routing_bytes = static_cast<std::size_t>(padded * moe.sources->top_k()) * 8;
  const Device device = stream_.device();
  Local local{.exchange = Exchange(Communicator::single(device), config),
              .mine = Buffer(device, static_cast<std::size_t>(padded * row_bytes)),
              .tokens = Buffer(device, static_cast<std::size_t>(all * row_bytes)),
              .my_routing = Buffer(device, routing_bytes),
              .routing = Buffer(device, routing_bytes * static_cast<std::size_t>(settings_.num_ranks)),
              .ids = uploaded(ids, stream_),
              .weights = uploaded(weights, stream_),
              .sums = Buffer(device, bytes_of(all, reduced_)),
              .sum = Buffer(device, bytes_of(padded, reduced_)),
              .output = Buffer(device, bytes_of(padded, settings_.computed())),
              .dispatch = set.dispatch_args(),
              .combine = set.combine_args()};
  upload(moe.own_tokens(), local.mine.data(), stream_, team_);
  fill_bytes(local.my_routing.data(), 1, routing_bytes, stream_);
  stream_.synchronize();
  local.dispatch.tokens = {local.tokens.data(), settings_.payload, all, moe.hidden};
  local.dispatch.expert_ids = {local.ids.data(), IndexType::int32};
  local.dispatch.weights = local.weights.as<float>();
  local.combine.output = {local.sums.data(), reduced_, all, moe.hidden};
  return local;
}

void AllGather::dispatch(std::size_t set) {
  Local& local = locals_[set];
  collectives_.all_gather(local.mine.data(), local.tokens.data(), static_cast<std::int64_t>(local.mine.size_bytes()));
  collectives_.all_gather(local.my_routing.data(), local.routing.data(),
                          static_cast<std::int64_t>(local.my_routing.size_bytes()));
  local.exchange.dispatch(local.dispatch, stream_);
}

void AllGather::combine(std::size_t set) {
  Local& local = locals_[set];
  local.exchange.combine(local.combine, stream_);
  const auto count = static_cast<std::int64_t>(local.sum.size_bytes() / size_of(reduced_));
  collectives_.reduce_scatter(local.sums.data(), local.sum.data(), count, reduced_);
  if (reduced_ != settings_.computed()) round_sums(local);
}

/// On the host, where all is done when the reduce-scatter has returned.
void AllGather::round_sums(const Local& local) {
  const auto* sums = local.sum.as<float>();
  const auto count = static_cast<std::int64_t>(local.sum.size_bytes() / sizeof(float));
  visit_number(settings_.computed(), [&](auto element) {
    auto* output = local.output.as<typename decltype(element)::Bits>();
    team_.for_ranges(count, 64 << 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) output[i] = decltype(element)::store(sums[i]);
    });
  });
}

void AllGather::check_combine(std::size_t set, Team& team, Mismatches& mismatches) {
  const Local& local = locals_[set];
  MoeCase moe = sets_[set]->moe();
  moe.rounded_parts = reduced_ != DataType::float32;
  moe.order_is_free = true;
  const std::int64_t rows = moe.own_tokens().rows;
  const Buffer& output = reduced_ == settings_.computed() ? local.sum : local.output;
  HostPiece piece(output.data(), rows * moe.hidden * static_cast<std::int64_t>(size_of(settings_.computed())), stream_);
  check_output(moe, 0, rows, piece.data(), team, mismatches);
}

}  // namespace moelink::perf
