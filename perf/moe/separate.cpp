#include "perf/moe/separate.hpp"

#include <algorithm>

#include "perf/common/host_piece.hpp"
#include "perf/moe/local_twin.hpp"

namespace moelink::perf {
namespace {

std::int64_t most_elements(const MoeSets& sets) {
  const MutableMatrixView output = sets.front()->output();  // sets are equally large
  return std::max<std::int64_t>(output.rows * output.columns, 1);
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
  std::vector<std::int32_t> ids;
  for (std::int64_t entry = 0; entry < moe.sources->num_entries(); ++entry) {
    ids.push_back(local_expert_of(moe, 0, entry));  // tensor parallel: one source
  }
  const std::size_t output_bytes = static_cast<std::size_t>(most_elements(sets_)) * size_of(set.output().type);
  Local local{.exchange = Exchange(Communicator::single(stream_.device()), twin_config(set, moe.own_tokens().rows)),
              .ids = uploaded(ids, stream_),
              .output = Buffer(stream_.device(), output_bytes),
              .dispatch = set.dispatch_args(),
              .combine = set.combine_args()};
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
  moe.order_is_free = false;
  const MutableMatrixView& output = locals_[set].combine.output;
  HostPiece piece(output.data, output.rows * output.row_bytes(), stream_);
  check_output(moe, 0, output.rows, piece.data(), team, mismatches);
  all_reduce_.check();
}

}  // namespace moelink::perf
