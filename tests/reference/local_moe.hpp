// What one rank's dispatch and combine have to do, slow and obvious. Shares nothing with the library but its public
// vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "moelink/types.hpp"
#include "reference/element.hpp"

namespace moelink::reference {

/// One dispatch's routing, as given.
struct RoutingInput {
  std::int64_t num_experts = 0;
  int top_k = 0;
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> ids = {};  ///< [num_tokens, top_k]
  std::vector<float> weights = {};     ///< [num_tokens, top_k], or empty: all 1
  Layout layout = Layout::packed;
  std::int64_t alignment = 1;
  std::int64_t capacity = 0;  ///< packed: rows in all, a multiple of alignment; batched: rows per expert
};

/// Where every entry goes. Rows that hold nothing have expert -1.
struct Routing {
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> row_of_entry;  ///< -1: skipped or dropped
  std::vector<std::int32_t> expert_of_row;
  std::vector<float> weight_of_row;
  std::vector<std::int64_t> source_of_row;
  std::int64_t ids_out_of_range = 0;
  std::int64_t rows_over_capacity = 0;
};

/// Expert by expert, token by token, k by k: the order that the library promises.
inline Routing route(const RoutingInput& in) {
  Routing out;
  const std::int64_t num_entries = in.num_tokens * in.top_k;
  out.offsets.push_back(0);
  out.row_of_entry.assign(num_entries, -1);
  for (const std::int64_t id : in.ids) out.ids_out_of_range += id < -1 || id >= in.num_experts ? 1 : 0;

  for (std::int64_t expert = 0; expert < in.num_experts; ++expert) {
    const std::int64_t first = out.offsets.back();
    const std::int64_t room = in.layout == Layout::packed ? in.capacity - first : in.capacity;
    std::int32_t count = 0;
    for (std::int64_t entry = 0; entry < num_entries; ++entry) {
      if (in.ids[entry] != expert) continue;
      if (count == room) {
        ++out.rows_over_capacity;
        continue;
      }
      out.row_of_entry[entry] = static_cast<std::int32_t>(first + count++);
      out.expert_of_row.push_back(static_cast<std::int32_t>(expert));
      out.weight_of_row.push_back(in.weights.empty() ? 1.0F : in.weights[entry]);
      out.source_of_row.push_back(entry);
    }
    out.counts.push_back(count);
    const std::int64_t held =
        in.layout == Layout::packed ? (count + in.alignment - 1) / in.alignment * in.alignment : in.capacity;
    out.offsets.push_back(first + held);
    out.expert_of_row.resize(first + held, -1);
    out.weight_of_row.resize(first + held, 0.0F);
    out.source_of_row.resize(first + held, -1);
  }
  return out;
}

/// The rows of one dispatch: [offsets.back(), row_bytes]; pads are zero. `tokens` is dense.
inline std::vector<unsigned char> dispatch_rows(const Routing& routing, int top_k, const unsigned char* tokens,
                                                std::int64_t row_bytes) {
  std::vector<unsigned char> rows(routing.offsets.back() * row_bytes, 0);
  for (std::size_t row = 0; row < routing.source_of_row.size(); ++row) {
    if (routing.expert_of_row[row] < 0) continue;
    const std::int64_t token = routing.source_of_row[row] / top_k;
    std::memcpy(rows.data() + row * row_bytes, tokens + token * row_bytes, row_bytes);
  }
  return rows;
}

/// WeightMode::on_input: every row times its weight, rounded to its type.
inline void weight_rows(const Routing& routing, unsigned char* rows, DataType type, std::int64_t hidden) {
  for (std::size_t row = 0; row < routing.expert_of_row.size(); ++row) {
    if (routing.expert_of_row[row] < 0) continue;
    for (std::int64_t column = 0; column < hidden; ++column) {
      const std::int64_t index = static_cast<std::int64_t>(row) * hidden + column;
      store(rows, type, index, load(rows, type, index) * routing.weight_of_row[row]);
    }
  }
}

struct CombineInput {
  int top_k = 0;
  std::int64_t num_tokens = 0;
  std::int64_t hidden = 0;
  const void* expert_output = nullptr;  ///< dense rows
  DataType expert_output_type = DataType::bfloat16;
  DataType output_type = DataType::bfloat16;
  std::vector<float> weights = {};  ///< [num_tokens, top_k], or empty: plain sum
  const void* shared = nullptr;     ///< [num_tokens, hidden] of the type of the rows, added last; or none
  bool accumulate = false;
};

/// Adds up each token's rows in `output` ([num_tokens, hidden], dense): fp32, k ascending, product and sum each
/// rounded.
inline void combine(const CombineInput& in, const Routing& routing, void* output) {
  for (std::int64_t token = 0; token < in.num_tokens; ++token) {
    for (std::int64_t column = 0; column < in.hidden; ++column) {
      const std::int64_t index = token * in.hidden + column;
      float sum = in.accumulate ? load(output, in.output_type, index) : 0.0F;
      for (int k = 0; k < in.top_k; ++k) {
        const std::int64_t entry = token * in.top_k + k;
        const std::int64_t row = routing.row_of_entry[entry];
        if (row < 0) continue;
        const float value = load(in.expert_output, in.expert_output_type, row * in.hidden + column);
        const float product = in.weights.empty() ? value : in.weights[entry] * value;
        sum += product;  // two roundings: the project is built with -ffp-contract=off
      }
      if (in.shared != nullptr) sum += load(in.shared, in.expert_output_type, index);
      store(output, in.output_type, index, sum);
    }
  }
}

}  // namespace moelink::reference
