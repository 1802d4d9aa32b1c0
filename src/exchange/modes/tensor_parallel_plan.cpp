#include "exchange/modes/tensor_parallel_plan.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/element.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Thresholds as data, in bytes of one rank's parts (tokens * hidden * bytes of an element on its way), for up to so
/// many ranks. Those of two ranks were measured with parts in 16 bits and rows of 14 KiB, on two GPUs and on a shared
/// one (docs/performance.md); the others are guesses.
///
/// Two ranks: 448 KiB by push and by pull take 7.6 and 9.0 us on two GPUs, but 9.9 and 9.1 on a shared one: one
/// threshold for both, set for the larger difference. 7 MiB by fused pull and by separate launches take 39.5 and 45.9
/// us on two GPUs and are equal on a shared one. Of two ranks each loads what the other has: two shots would move
/// little less.
struct Threshold {
  int max_ranks;
  i64 push_bytes;   ///< up to here push
  i64 pull_bytes;   ///< then pull; beyond, two-shot (or NVLS)
  i64 fused_bytes;  ///< beyond, parts are left by a launch of their own
};
constexpr i64 kAlways = std::numeric_limits<i64>::max();
constexpr Threshold kThresholds[] = {
    {2, 512 << 10, kAlways, 8 << 20},
    {4, 128 << 10, 256 << 10, 2 << 20},        // a guess
    {8, 64 << 10, 128 << 10, 1 << 20},         // a guess
    {1 << 30, 32 << 10, 64 << 10, 512 << 10},  // a guess
};
/// Tiles that make a block of the staged algorithms worth its trips, and units that make one of separate sums so.
constexpr i64 kLeastChunkTiles = 2;
constexpr i64 kLeastRunUnits = kLeastChunkTiles * kTpTileUnits;
/// Blocks of a launch on the host: few, its threads run them.
constexpr int kHostWorkers = 8;
/// Most blocks of a launch that leaves parts: several times what a GPU holds, so that the last ones end together.
constexpr i64 kMostPartsBlocks = 1024;
constexpr i64 kMostLineBytes = 256 << 20;

const Threshold& thresholds_for(int num_ranks) {
  return *std::find_if(std::begin(kThresholds), std::end(kThresholds),
                       [&](const Threshold& t) { return num_ranks <= t.max_ranks; });
}

i64 units_per_row(const TpFacts& facts) { return facts.hidden / tp_unit_elements(facts.hidden); }
i64 units_of(const TpFacts& facts, i64 num_tokens) { return num_tokens * units_per_row(facts); }
i64 tiles_of(const TpFacts& facts, i64 num_tokens, i64 tile_units) {
  return num_tokens * ceil_div(units_per_row(facts), tile_units);
}
i64 bytes_of_parts(const TpFacts& facts, i64 part_bytes, i64 num_tokens) {
  return num_tokens * facts.hidden * part_bytes;
}
i64 item_bytes(const TpFacts& facts, i64 part_bytes) {
  return i64{kTpItemUnits} * tp_unit_elements(facts.hidden) * part_bytes;
}
i64 widest_part_bytes(const TpFacts& facts) { return facts.has_wide_parts ? 4 : 2; }
std::vector<i64> sizes_of_parts(const TpFacts& facts) {
  std::vector<i64> sizes;
  if (facts.has_narrow_parts) sizes.push_back(2);
  if (facts.has_wide_parts) sizes.push_back(4);
  return sizes;
}

/// Most items of a call by push.
i64 max_items(const TpFacts& facts, i64 part_bytes) {
  const i64 all = ceil_div(units_of(facts, facts.max_tokens), i64{kTpItemUnits});
  if (facts.only == TensorParallelSum::push) return all;
  return min_of(all, ceil_div(thresholds_for(facts.num_ranks).push_bytes, item_bytes(facts, part_bytes)));
}
i64 max_items_of_all(const TpFacts& facts) {
  i64 items = 0;
  for (const i64 part_bytes : sizes_of_parts(facts)) items += max_items(facts, part_bytes);
  return max_of(items, i64{1});
}

TensorParallelSum staged_sum(const TpFacts& facts, i64 num_bytes) {
  if (num_bytes <= thresholds_for(facts.num_ranks).pull_bytes) return TensorParallelSum::pull;
  return facts.multicast ? TensorParallelSum::nvls : TensorParallelSum::two_shot;
}

TpPlan choose(const TpFacts& facts, i64 num_bytes) {
  const Threshold& threshold = thresholds_for(facts.num_ranks);
  switch (facts.only) {
    case TensorParallelSum::automatic:
      if (num_bytes <= threshold.push_bytes) return {.sum = TensorParallelSum::push};
      return {.sum = staged_sum(facts, num_bytes), .separate = num_bytes > threshold.fused_bytes};
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

/// Blocks that leave parts: they wait for nobody, and any number is right.
int parts_blocks(const TpFacts& facts, i64 num_tokens, int max_sms) {
  const i64 tiles = tiles_of(facts, num_tokens, kTpPartsTileUnits);
  const i64 most = facts.on_host ? kHostWorkers : max_sms > 0 ? max_sms : kMostPartsBlocks;
  return static_cast<int>(min_of(ceil_div(tiles, i64{facts.on_host ? 1 : kTpPartsThreads / 32}), most));
}

}  // namespace

TpPlan plan_tp_combine(const TpFacts& facts, i64 part_bytes, i64 num_tokens, int max_sms) {
  TpPlan plan = choose(facts, bytes_of_parts(facts, part_bytes, num_tokens));
  if (num_tokens == 0) {
    plan.separate = false;
    return plan;
  }
  const int most = max_sms > 0 ? std::clamp(max_sms - 1, 1, facts.max_workers) : facts.max_workers;
  const auto at_most = [&](i64 pieces) { return static_cast<int>(min_of(pieces, i64{most})); };
  if (plan.sum == TensorParallelSum::push) {
    plan.workers = at_most(ceil_div(units_of(facts, num_tokens), i64{kTpItemUnits}));
  } else if (plan.separate) {
    plan.workers = at_most(ceil_div(units_of(facts, num_tokens), kLeastRunUnits));
    plan.parts_blocks = parts_blocks(facts, num_tokens, max_sms);
  } else {
    const i64 tiles = tiles_of(facts, num_tokens, kTpTileUnits);
    plan.workers = at_most(ceil_div(tiles, kLeastChunkTiles));
    const i64 num_steps = ceil_div(tiles, plan.workers * i64{kTpChunkTiles});
    plan.chunk_tiles = ceil_div(tiles, plan.workers * num_steps);  // steps of equal length
  }
  return plan;
}

std::string describe(const TpPlan& plan) {
  return (plan.separate ? text("parts: ", plan.parts_blocks, " blocks, then ") : std::string("fused ")) +
         text(name_of(plan.sum), ": ", plan.workers + 1, " blocks") +
         (plan.chunk_tiles == 0 ? std::string() : text(", chunks of ", plan.chunk_tiles, " tiles"));
}

std::vector<TpPlan> kinds_of_plans(const TpFacts& facts, i64 part_bytes) {
  const Threshold& threshold = thresholds_for(facts.num_ranks);
  std::vector<TpPlan> kinds;
  const auto add = [&](i64 num_tokens) {
    const TpPlan plan = plan_tp_combine(facts, part_bytes, std::clamp<i64>(num_tokens, 0, facts.max_tokens));
    const auto same = [&](const TpPlan& other) { return other.sum == plan.sum && other.separate == plan.separate; };
    if (std::none_of(kinds.begin(), kinds.end(), same)) kinds.push_back(plan);
  };
  add(0);
  add(1);
  for (const i64 limit : {threshold.push_bytes, threshold.pull_bytes, threshold.fused_bytes}) {
    if (limit != kAlways) add(limit / bytes_of_parts(facts, part_bytes, 1) + 1);
  }
  return kinds;
}

TensorParallelSizes tp_sizes(const TpFacts& facts) {
  const i64 most_workers = facts.on_host ? kHostWorkers : kTpMaxWorkers;
  TensorParallelSizes sizes{
      .num_ranks = facts.num_ranks,
      .num_items = max_items_of_all(facts),
      .num_workers = min_of(ceil_div(tiles_of(facts, facts.max_tokens, kTpTileUnits), kLeastChunkTiles), most_workers),
      .unit_bytes = tp_unit_elements(facts.hidden) * widest_part_bytes(facts),
      .parts_bytes = 0};
  for (const i64 part_bytes : sizes_of_parts(facts)) {
    for (const TpPlan& plan : kinds_of_plans(facts, part_bytes)) {
      if (!plan.separate) continue;
      sizes.parts_bytes = max_of(sizes.parts_bytes, bytes_of_parts(facts, part_bytes, facts.max_tokens));
    }
  }
  return sizes;
}

TensorParallelLayout tp_layout(const TpFacts& facts) { return TensorParallelLayout::of(tp_sizes(facts)); }

i64 first_tp_item(const TpFacts& facts, i64 part_bytes) {
  return part_bytes == 4 && facts.has_narrow_parts ? max_items(facts, 2) : 0;
}

Element tp_part(const ExchangeConfig& config, const CombineTypes& types) {
  return config.fp32_partials ? Element::float32 : element_of(types.output);
}

TpFacts tp_facts(const ExchangeShape& shape, const ExchangeConfig& config, bool on_host) {
  const auto has_parts_of = [&](int part_bytes) {
    return std::any_of(config.combine_types.begin(), config.combine_types.end(),
                       [&](const CombineTypes& types) { return bytes_of(tp_part(config, types)) == part_bytes; });
  };
  const TpFacts facts{.num_ranks = shape.num_ranks,
                      .hidden = shape.hidden,
                      .max_tokens = shape.max_tokens,
                      .has_narrow_parts = has_parts_of(2),
                      .has_wide_parts = has_parts_of(4),
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
  const i64 bytes = 2 * facts.num_ranks * max_items_of_all(facts) * item_bytes(facts, widest_part_bytes(facts)) * 2;
  if (bytes <= kMostLineBytes) return;
  throw Error(ErrorCode::capacity, text("ExchangeConfig::tensor_parallel_sum is push, whose lines take ", bytes,
                                        " bytes for max_tokens ", facts.max_tokens, "; expected at most ",
                                        kMostLineBytes, ": lower max_tokens, or leave the choice to `automatic`"));
}

}  // namespace moelink
