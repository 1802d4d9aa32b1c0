// How the ranks of a tensor-parallel Exchange sum: which kernel, how many blocks, how the work is cut. Pure functions
// of values that all ranks agree on, so that every rank chooses the same.
#pragma once

#include <string>
#include <vector>

#include "exchange/shape.hpp"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

/// Compared over ranks at construction.
struct TpFacts {
  int num_ranks = 1;
  i64 hidden = 0;
  i64 max_tokens = 0;
  bool has_narrow_parts = true;  ///< some combine's parts travel in 16 bits
  bool has_wide_parts = false;   ///< some combine's parts travel in fp32
  bool on_host = false;
  bool multicast = false;  ///< every rank has the multicast mapping, and may use it
  int max_workers = 1;     ///< the smallest of the ranks' shares of their devices, less the block that compares inputs
  TensorParallelSum only = TensorParallelSum::automatic;
};

struct TpPlan {
  TensorParallelSum sum = TensorParallelSum::push;  ///< push, pull, two_shot or nvls
  bool separate = false;                            ///< a launch that leaves parts comes before
  int workers = 0;                                  ///< blocks beside the one that compares inputs; 0 without tokens
  i64 chunk_tiles = 0;                              ///< fused pull, two_shot, nvls: TensorParallelArgs::chunk_tiles
  int parts_blocks = 0;                             ///< separate: blocks of the launch before
  friend bool operator==(const TpPlan&, const TpPlan&) = default;
};

/// `part_bytes`: of an element on its way, 2 or 4. `max_sms`: most blocks, 0: no limit but the facts'.
[[nodiscard]] TpPlan plan_tp_combine(const TpFacts& facts, i64 part_bytes, i64 num_tokens, int max_sms = 0);

/// "fused pull: 66 blocks, chunks of 14 tiles".
[[nodiscard]] std::string describe(const TpPlan& plan);

/// One plan of each kind that the facts lead to, with the fewest tokens.
[[nodiscard]] std::vector<TpPlan> kinds_of_plans(const TpFacts& facts, i64 part_bytes);

/// The symmetric memory that any of these plans needs; `max_workers` of the facts is not looked at.
[[nodiscard]] TensorParallelSizes tp_sizes(const TpFacts& facts);
[[nodiscard]] TensorParallelLayout tp_layout(const TpFacts& facts);

/// Push: the first of the items that parts of this size have. Those of another size have others, so that every line of
/// an item is rewritten whenever the item is used.
[[nodiscard]] i64 first_tp_item(const TpFacts& facts, i64 part_bytes);

/// In which type a rank's part of a sum travels.
[[nodiscard]] Element tp_part(const ExchangeConfig& config, const CombineTypes& types);

/// What the configuration says; the rest is agreed later. Throws as check_push_alone.
[[nodiscard]] TpFacts tp_facts(const ExchangeShape& shape, const ExchangeConfig& config, bool on_host);

/// Whether the switch may sum, where there is multicast.
[[nodiscard]] bool may_use_nvls(const ExchangeConfig& config);

/// Throws ErrorCode::capacity if push is asked for by name for more tokens than its lines can hold.
void check_push_alone(const TpFacts& facts);

}  // namespace moelink
