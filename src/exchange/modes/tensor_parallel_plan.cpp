#include "exchange/modes/tensor_parallel_plan.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Thresholds as data, in bytes of one rank's fp32 sums (tokens * hidden * 4), for up to so many ranks. The
/// measurements are in docs/performance.md.
struct Threshold {
  int max_ranks;
  i64 push_bytes;  ///< up to here push
  i64 pull_bytes;  ///< then pull; beyond, two-shot (or NVLS)
};
constexpr i64 kAlways = std::numeric_limits<i64>::max();
constexpr Threshold kThresholds[] = {
    {2, 512 << 10, kAlways},  // of two ranks each loads what the other has: two shots would move little less
    {4, 256 << 10, 512 << 10},
    {8, 128 << 10, 256 << 10},
    {1 << 30, 64 << 10, 128 << 10},
};
/// Beyond, the combine is a launch of its own.
constexpr i64 kFusedBytes = 8 << 20;
/// Units that make a block of the staged algorithms worth its trips.
constexpr i64 kLeastChunkUnits = 128;
/// Blocks of a launch on the host: few, its threads run them.
constexpr int kHostWorkers = 8;
constexpr i64 kMostLineBytes = 256 << 20;

const Threshold& thresholds_for(int num_ranks) {
  return *std::find_if(std::begin(kThresholds), std::end(kThresholds),
                       [&](const Threshold& t) { return num_ranks <= t.max_ranks; });
}

i64 units_of(const TpFacts& facts, i64 num_tokens) {
  return num_tokens * (facts.hidden / tp_unit_elements(facts.hidden));
}
i64 bytes_of(const TpFacts& facts, i64 num_tokens) { return num_tokens * facts.hidden * i64{sizeof(float)}; }
i64 item_bytes(const TpFacts& facts) { return i64{kTpItemUnits} * tp_unit_elements(facts.hidden) * i64{sizeof(float)}; }

/// Most items of a call by push.
i64 max_items(const TpFacts& facts) {
  const i64 all = ceil_div(units_of(facts, facts.max_tokens), i64{kTpItemUnits});
  if (facts.only == TensorParallelSum::push) return all;
  return min_of(all, ceil_div(thresholds_for(facts.num_ranks).push_bytes, item_bytes(facts)));
}

TensorParallelSum staged_sum(const TpFacts& facts, i64 num_bytes) {
  if (num_bytes <= thresholds_for(facts.num_ranks).pull_bytes) return TensorParallelSum::pull;
  return facts.multicast ? TensorParallelSum::nvls : TensorParallelSum::two_shot;
}

TpPlan choose(const TpFacts& facts, i64 num_bytes) {
  switch (facts.only) {
    case TensorParallelSum::automatic:
      if (num_bytes <= thresholds_for(facts.num_ranks).push_bytes) return {.sum = TensorParallelSum::push};
      return {.sum = staged_sum(facts, num_bytes), .separate = num_bytes > kFusedBytes};
    case TensorParallelSum::separate:
      return {.sum = staged_sum(facts, num_bytes), .separate = true};
    case TensorParallelSum::push:
    case TensorParallelSum::pull:
    case TensorParallelSum::two_shot:
    case TensorParallelSum::nvls:
      break;
  }
  return {.sum = facts.only};
}

}  // namespace

TpPlan plan_tp_combine(const TpFacts& facts, i64 num_tokens, int max_sms) {
  TpPlan plan = choose(facts, bytes_of(facts, num_tokens));
  if (num_tokens == 0) {
    plan.separate = false;
    return plan;
  }
  const i64 units = units_of(facts, num_tokens);
  const int most = max_sms > 0 ? std::clamp(max_sms - 1, 1, facts.max_workers) : facts.max_workers;
  const i64 pieces = ceil_div(units, plan.sum == TensorParallelSum::push ? i64{kTpItemUnits} : kLeastChunkUnits);
  plan.workers = static_cast<int>(min_of(pieces, i64{most}));
  if (plan.sum == TensorParallelSum::push) return plan;
  const i64 slot_units = kTpSlotBytes / (tp_unit_elements(facts.hidden) * i64{sizeof(float)});
  const i64 num_steps = ceil_div(units, plan.workers * slot_units);
  plan.chunk_units = ceil_div(units, plan.workers * num_steps);  // steps of equal length
  return plan;
}

std::string describe(const TpPlan& plan) {
  return text(plan.separate ? "combine, then " : "fused ", name_of(plan.sum), ": ", plan.workers + 1, " blocks") +
         (plan.chunk_units == 0 ? std::string() : text(", chunks of ", plan.chunk_units, " units"));
}

std::vector<TpPlan> kinds_of_plans(const TpFacts& facts) {
  const Threshold& threshold = thresholds_for(facts.num_ranks);
  std::vector<TpPlan> kinds;
  const auto add = [&](i64 num_tokens) {
    const TpPlan plan = plan_tp_combine(facts, std::clamp<i64>(num_tokens, 0, facts.max_tokens));
    const auto same = [&](const TpPlan& other) { return other.sum == plan.sum && other.separate == plan.separate; };
    if (std::none_of(kinds.begin(), kinds.end(), same)) kinds.push_back(plan);
  };
  add(0);
  add(1);
  for (const i64 limit : {threshold.push_bytes, threshold.pull_bytes, kFusedBytes}) {
    if (limit != kAlways) add(limit / bytes_of(facts, 1) + 1);
  }
  return kinds;
}

TensorParallelLayout tp_layout(const TpFacts& facts) {
  const i64 most = facts.on_host ? kHostWorkers : kTpMaxWorkers;
  return TensorParallelLayout::of(facts.num_ranks, max_of(max_items(facts), i64{1}),
                                  min_of(ceil_div(units_of(facts, facts.max_tokens), kLeastChunkUnits), most));
}

TpFacts tp_facts(const ExchangeShape& shape, const ExchangeConfig& config, bool on_host) {
  const TpFacts facts{.num_ranks = shape.num_ranks,
                      .hidden = shape.hidden,
                      .max_tokens = shape.max_tokens,
                      .on_host = on_host,
                      .max_workers = on_host ? kHostWorkers : kTpMaxWorkers,
                      .only = config.tensor_parallel_sum};
  check_push_alone(facts);
  return facts;
}

bool may_use_nvls(const ExchangeConfig& config) {
  return !config.deterministic && (config.tensor_parallel_sum == TensorParallelSum::automatic ||
                                   config.tensor_parallel_sum == TensorParallelSum::separate ||
                                   config.tensor_parallel_sum == TensorParallelSum::nvls);
}

void check_push_alone(const TpFacts& facts) {
  if (facts.only != TensorParallelSum::push) return;
  const i64 bytes = 2 * facts.num_ranks * max_items(facts) * item_bytes(facts) * 2;
  if (bytes <= kMostLineBytes) return;
  throw Error(ErrorCode::capacity, text("ExchangeConfig::tensor_parallel_sum is push, whose lines take ", bytes,
                                        " bytes for max_tokens ", facts.max_tokens, "; expected at most ",
                                        kMostLineBytes, ": lower max_tokens, or leave the choice to `automatic`"));
}

}  // namespace moelink
