// What dispatch and combine of several ranks have to do, slow and obvious. Every rank's routing is the local reference
// over all entries, those of other ranks' experts left out; only sums are new. Shares nothing with the library.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "moelink/types.hpp"
#include "reference/element.hpp"
#include "reference/local_moe.hpp"

namespace moelink::reference {

/// What one source passes: the ranks of a group pass the same.
struct SourceInput {
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> ids = {};  ///< [num_tokens, top_k]
  std::vector<float> weights = {};     ///< [num_tokens, top_k], or empty: all 1
};

/// One dispatch of all ranks. Ranks [s * tp_size, (s + 1) * tp_size) are source s; tensor parallel is one source of all
/// ranks.
struct RanksInput {
  int num_ranks = 1;
  int tp_size = 1;
  std::int64_t num_experts = 0;  ///< that ids name
  int top_k = 0;
  std::int64_t max_tokens = 0;
  /// [num_experts, max_replicas] physical experts, -1 behind the last; empty: ids are physical experts.
  std::vector<std::int32_t> expert_map = {};
  std::int64_t num_physical_experts = 0;  ///< with a map
  int max_replicas = 1;
  std::vector<SourceInput> sources = {};
  Layout layout = Layout::packed;
  std::int64_t alignment = 1;
  std::int64_t capacity = 0;  ///< of each rank, as RoutingInput::capacity

  [[nodiscard]] std::int64_t physical_experts() const {
    return expert_map.empty() ? num_experts : num_physical_experts;
  }
  [[nodiscard]] std::int64_t first_expert(int rank) const { return physical_experts() * rank / num_ranks; }
  [[nodiscard]] int source_of_rank(int rank) const { return rank / tp_size; }
};

/// An id that stands for no expert: unused, or out of range.
inline constexpr std::int64_t kUnused = -1;
inline constexpr std::int64_t kOutOfRange = -2;

/// The physical expert of an entry, or one of the two above.
inline std::int64_t physical_expert(const RanksInput& in, int source, std::int64_t entry) {
  const std::int64_t id = in.sources[source].ids[entry];
  if (id == -1) return kUnused;
  if (id < 0 || id >= in.num_experts) return kOutOfRange;
  if (in.expert_map.empty()) return id;
  const std::int32_t* replicas = in.expert_map.data() + id * in.max_replicas;
  std::int64_t count = 0;
  while (count < in.max_replicas && replicas[count] != -1) ++count;
  if (count == 0) return kUnused;
  const std::int64_t expert = replicas[(source + entry / in.top_k) % count];
  return expert >= 0 && expert < in.num_physical_experts ? expert : kOutOfRange;
}

/// The rank that owns a physical expert.
inline int owner_of(const RanksInput& in, std::int64_t expert) {
  int rank = 0;
  while (expert >= in.first_expert(rank + 1)) ++rank;
  return rank;
}

/// What ExpertBatch::source_of_row says of an entry.
inline std::int64_t source_word(const RanksInput& in, int source, std::int64_t entry) {
  const std::int64_t first_rank = std::int64_t{source} * in.tp_size;
  return first_rank * in.max_tokens * in.top_k + entry;
}

/// One rank's routing: over the entries of all sources, one behind the other. Experts are local; `source_of_row` is as
/// in ExpertBatch.
struct RankRouting {
  Routing rows;
  std::vector<std::int64_t> first_entry;  ///< [sources + 1] where the entries of each source start in row_of_entry
  std::vector<std::int64_t> dropped;      ///< [sources] entries of each that found no room here
  std::vector<std::pair<int, std::int64_t>> entry_of_row;  ///< (source, entry); -1 on pads
  std::int64_t ids_out_of_range = 0;                       ///< of the tokens that this rank passed

  /// -1: not here, or dropped.
  [[nodiscard]] std::int64_t row_of(int source, std::int64_t entry) const {
    return rows.row_of_entry[first_entry[source] + entry];
  }
};

inline RankRouting route_rank(const RanksInput& in, int rank) {
  const std::int64_t first = in.first_expert(rank);
  const std::int64_t end = in.first_expert(rank + 1);
  RoutingInput local{.num_experts = end - first,
                     .top_k = in.top_k,
                     .layout = in.layout,
                     .alignment = in.alignment,
                     .capacity = in.capacity};
  RankRouting out;
  out.first_entry.push_back(0);
  for (int source = 0; source < static_cast<int>(in.sources.size()); ++source) {
    const SourceInput& from = in.sources[source];
    for (std::int64_t entry = 0; entry < from.num_tokens * in.top_k; ++entry) {
      const std::int64_t expert = physical_expert(in, source, entry);
      if (expert == kOutOfRange && source == in.source_of_rank(rank)) ++out.ids_out_of_range;
      local.ids.push_back(expert >= first && expert < end ? expert - first : -1);
      local.weights.push_back(from.weights.empty() ? 1.0F : from.weights[entry]);
    }
    local.num_tokens += from.num_tokens;
    out.first_entry.push_back(static_cast<std::int64_t>(local.ids.size()));
  }
  out.rows = route(local);

  out.entry_of_row.assign(out.rows.source_of_row.size(), {-1, -1});
  for (int source = 0; source < static_cast<int>(in.sources.size()); ++source) {
    out.dropped.push_back(0);
    for (std::int64_t entry = 0; entry < in.sources[source].num_tokens * in.top_k; ++entry) {
      const std::int64_t all = out.first_entry[source] + entry;
      const std::int64_t row = out.rows.row_of_entry[all];
      if (row < 0) {
        out.dropped.back() += local.ids[all] >= 0 ? 1 : 0;
        continue;
      }
      out.entry_of_row[row] = {source, entry};
      out.rows.source_of_row[row] = source_word(in, source, entry);
    }
  }
  return out;
}

inline std::vector<RankRouting> route_ranks(const RanksInput& in) {
  std::vector<RankRouting> ranks;
  for (int rank = 0; rank < in.num_ranks; ++rank) ranks.push_back(route_rank(in, rank));
  return ranks;
}

/// A rank's rows: [offsets.back(), row_bytes]; pads are zero. tokens[source] is dense.
inline std::vector<unsigned char> dispatch_rows(const RankRouting& routing, int top_k,
                                                const std::vector<const unsigned char*>& tokens,
                                                std::int64_t row_bytes) {
  std::vector<unsigned char> rows(routing.rows.offsets.back() * row_bytes, 0);
  for (std::size_t row = 0; row < routing.entry_of_row.size(); ++row) {
    const auto [source, entry] = routing.entry_of_row[row];
    if (source < 0) continue;
    std::memcpy(rows.data() + row * row_bytes, tokens[source] + entry / top_k * row_bytes, row_bytes);
  }
  return rows;
}

/// One combine of all ranks.
struct RanksCombineInput {
  std::int64_t hidden = 0;
  std::vector<const void*> expert_output = {};  ///< of each rank: dense, at its rows
  DataType expert_output_type = DataType::bfloat16;
  DataType output_type = DataType::bfloat16;
  bool weighted = true;  ///< false: plain sums (weights on the input, or none)
  bool fp32_partials = false;
  bool accumulate = false;
  std::vector<const void*> shared =
      {};  ///< tensor parallel: of each rank [num_tokens, hidden] of the expert output type
};

/// A rank's part of a token's sum: k ascending over the entries that live there, product and sum rounded to fp32.
inline float partial_sum(const RanksInput& in, const RankRouting& rank, const RanksCombineInput& combine,
                         int rank_index, int source, std::int64_t token, std::int64_t column) {
  float sum = 0.0F;
  for (int k = 0; k < in.top_k; ++k) {
    const std::int64_t entry = token * in.top_k + k;
    const std::int64_t row = rank.row_of(source, entry);
    if (row < 0) continue;
    const float value =
        load(combine.expert_output[rank_index], combine.expert_output_type, row * combine.hidden + column);
    const bool weighted = combine.weighted && !in.sources[source].weights.empty();
    const float product = weighted ? in.sources[source].weights[entry] * value : value;
    sum += product;  // two roundings: the project is built with -ffp-contract=off
  }
  return sum;
}

/// Whether any entry of a token goes to a rank, kept there or not.
inline bool goes_to(const RanksInput& in, int rank, int source, std::int64_t token) {
  for (int k = 0; k < in.top_k; ++k) {
    const std::int64_t expert = physical_expert(in, source, token * in.top_k + k);
    if (expert >= 0 && owner_of(in, expert) == rank) return true;
  }
  return false;
}

/// What is left of a value that travels in a type.
inline float rounded_to(DataType type, float value) {
  unsigned char bytes[4];
  store(bytes, type, 0, value);
  return load(bytes, type, 0);
}

/// Tensor parallel: rank 0's part + rank 1's part + ..., each with its rank's shared row behind its own rows; what
/// `output` holds comes in front of rank 0's. Each is rounded to the type of the output unless fp32_partials.
inline void combine_tensor_parallel(const RanksInput& in, const std::vector<RankRouting>& ranks,
                                    const RanksCombineInput& combine, void* output) {
  for (std::int64_t token = 0; token < in.sources[0].num_tokens; ++token) {
    for (std::int64_t column = 0; column < combine.hidden; ++column) {
      const std::int64_t index = token * combine.hidden + column;
      float sum = 0.0F;
      for (int rank = 0; rank < in.num_ranks; ++rank) {
        float partial = partial_sum(in, ranks[rank], combine, rank, 0, token, column);
        if (!combine.shared.empty()) partial += load(combine.shared[rank], combine.expert_output_type, index);
        if (rank == 0 && combine.accumulate) partial = load(output, combine.output_type, index) + partial;
        if (!combine.fp32_partials) partial = rounded_to(combine.output_type, partial);
        sum = rank == 0 ? partial : sum + partial;
      }
      store(output, combine.output_type, index, sum);
    }
  }
}

/// Data parallel: the parts of the ranks that a token went to, ranks ascending, each rounded to the type of the expert
/// output unless fp32_partials; what `output` holds comes first.
inline void combine_data_parallel(const RanksInput& in, const std::vector<RankRouting>& ranks,
                                  const RanksCombineInput& combine, int source, void* output) {
  for (std::int64_t token = 0; token < in.sources[source].num_tokens; ++token) {
    for (std::int64_t column = 0; column < combine.hidden; ++column) {
      const std::int64_t index = token * combine.hidden + column;
      float sum = combine.accumulate ? load(output, combine.output_type, index) : 0.0F;
      for (int rank = 0; rank < in.num_ranks; ++rank) {
        if (!goes_to(in, rank, source, token)) continue;
        float partial = partial_sum(in, ranks[rank], combine, rank, source, token, column);
        if (!combine.fp32_partials) partial = rounded_to(combine.expert_output_type, partial);
        sum += partial;
      }
      store(output, combine.output_type, index, sum);
    }
  }
}

}  // namespace moelink::reference
