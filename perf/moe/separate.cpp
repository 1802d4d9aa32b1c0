#include "perf/moe/separate.hpp"

#include <algorithm>

#include "perf/common/host_piece.hpp"

namespace moelink::perf {
namespace {

std::int64_t most_elements(const MoeSets& sets) {
  const MutableMatrixView output = sets.front()->output();  // sets are equally large
  return std::max<std::int64_t>(output.rows * output.columns, 1);
}

/// The experts of this rank, numbered from zero; the others are skipped.
std::vector<std::int32_t> local_ids(const MoeCase& moe) {
  const std::int64_t first = moe.placement->first_expert(moe.plan->rank);
  const std::int64_t end = moe.placement->first_expert(moe.plan->rank + 1);
  std::vector<std::int32_t> ids;
  for (const std::int64_t id : moe.routing().expert_ids) {
    ids.push_back(id >= first && id < end ? static_cast<std::int32_t>(id - first) : -1);
  }
  return ids;
}

}  // namespace

Separate::Separate(const MoeSettings& settings, const MoeSets& sets, const Communicator& communicator,
                   StreamView stream)
    : sets_(sets),
      stream_(stream),
      all_reduce_(communicator, {.type = settings.computed(), .max_elements = most_elements(sets)}) {
  for (const auto& set : sets) locals_.push_back(make_local(*set));
}

Separate::Local Separate::make_local(const MoeSet& set) const {
  const MoeCase& moe = set.moe();
  ExchangeConfig config = set.config();
  config.mode = Mode::local;
  config.replicated_inputs = false;
  config.num_experts = std::max<std::int64_t>(moe.placement->num_experts_of(moe.plan->rank), 1);
  const std::vector<std::int32_t> ids = local_ids(moe);
  const std::size_t id_bytes = ids.size() * sizeof(std::int32_t);
  Local local{
      .exchange = Exchange(Communicator::single(stream_.device()), config),
      .ids = Buffer(stream_.device(), std::max<std::size_t>(id_bytes, 256)),
      .output = Buffer(stream_.device(), static_cast<std::size_t>(most_elements(sets_)) * size_of(set.output().type)),
      .dispatch = set.dispatch_args(),
      .combine = set.combine_args()};
  if (id_bytes != 0) copy_bytes(local.ids.data(), ids.data(), id_bytes, stream_);
  stream_.synchronize();
  local.dispatch.expert_ids = {local.ids.data(), IndexType::int32};
  local.combine.output.data = local.output.data();
  return local;
}

void Separate::dispatch(std::size_t set) { locals_[set].exchange.dispatch(locals_[set].dispatch, stream_); }

void Separate::combine(std::size_t set) {
  Local& local = locals_[set];
  local.exchange.combine(local.combine, stream_);
  const MutableMatrixView& output = local.combine.output;
  all_reduce_({.input = output.data, .output = output.data, .num_elements = output.rows * output.columns}, stream_);
}

void Separate::check_combine(std::size_t set, Team& team, Mismatches& mismatches) {
  MoeCase moe = sets_[set]->moe();
  moe.rounded_parts = true;
  const MutableMatrixView& output = locals_[set].combine.output;
  HostPiece piece(output.data, output.rows * output.row_bytes(), stream_);
  check_output(moe, 0, output.rows, piece.data(), team, mismatches);
  all_reduce_.check();
}

}  // namespace moelink::perf
