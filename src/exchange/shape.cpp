#include "exchange/shape.hpp"

#include <bit>
#include <limits>

#include "base/refuse.hpp"
#include "base/text.hpp"
#include "exchange/modes/mode_choice.hpp"
#include "moelink/error.hpp"
#include "quantize/format.hpp"
#include "transports/make_put.hpp"

namespace moelink {
namespace {

/// Rows and entries are numbered by 32-bit integers; bytes by 64-bit ones.
constexpr i64 kMaxCount = std::numeric_limits<i32>::max();
constexpr int kLargestAlignment = 65536;

void check_range(const char* name, i64 value, i64 least, i64 most, const char* remedy) {
  if (value < least || value > most) {
    refuse(text("ExchangeConfig::", name, " is ", value, "; expected ", least, " .. ", most, ": ", remedy));
  }
}

bool is_known(DataType type) { return size_of(type) != 0; }

void check_row_bytes(const std::string& what, i64 row_bytes, i64 hidden, i64 element_bytes) {
  if (row_bytes % kRowUnitBytes != 0) {
    const i64 padded = round_up(row_bytes, kRowUnitBytes) / element_bytes;
    refuse(text("ExchangeConfig::hidden is ", hidden, ": ", what, " are ", row_bytes,
                " bytes, expected a multiple of 16; pad hidden to ", padded));
  }
  if (row_bytes > kMaxCount) {
    refuse(text("ExchangeConfig::hidden is ", hidden, ": ", what, " are ", row_bytes,
                " bytes, expected fewer than 2^31; split the rows"));
  }
}

void check_quantize(const std::string& name, const Payload& payload, i64 hidden) {
  if (payload.quantize == Quantization::none) return;
  if (format_of(payload.quantize) == QuantFormat::none) {
    refuse(text(name, ".quantize is ", static_cast<int>(payload.quantize), ", which is no Quantization"));
  }
  if (payload.type != DataType::bfloat16 && payload.type != DataType::float16) {
    refuse(text(name, ".quantize is ", name_of(payload.quantize), " for ", name_of(payload.type),
                " rows; only bf16 and fp16 are quantised"));
  }
  if (payload.scale_bytes != 0) {
    refuse(text(name, ".scale_bytes is ", payload.scale_bytes, " beside quantize, which makes the scales; leave it 0"));
  }
  const i64 row_bytes = quant_bytes(format_of(payload.quantize), hidden);
  const i64 elements = is_fp4(format_of(payload.quantize)) ? 32 : 16;
  if (hidden % elements != 0) {
    refuse(text("ExchangeConfig::hidden is ", hidden, ": rows of ", name_of(payload.quantize), " are ", row_bytes,
                " bytes, expected a multiple of 16; pad hidden to ", round_up(hidden, elements)));
  }
}

void check_payload(std::size_t index, const Payload& payload, i64 hidden) {
  const std::string name = text("ExchangeConfig::payloads[", index, "]");
  if (!is_known(payload.type)) {
    refuse(text(name, ".type is ", static_cast<int>(payload.type), ", which is no DataType"));
  }
  if (payload.scale_bytes < 0 || payload.scale_bytes > kMaxCount) {
    refuse(text(name, ".scale_bytes is ", payload.scale_bytes, "; expected 0 (none) .. 2^31 - 1"));
  }
  if (payload.type != DataType::bytes) {
    check_quantize(name, payload, hidden);
    if (payload.row_bytes != 0) {
      refuse(text(name, ".row_bytes is ", payload.row_bytes, " for ", name_of(payload.type),
                  " rows, whose bytes follow from hidden; leave it 0, or use DataType::bytes"));
    }
    check_row_bytes(text("rows of ", name_of(payload.type)), row_bytes_of(payload, hidden), hidden,
                    static_cast<i64>(size_of(payload.type)));
  } else if (payload.quantize != Quantization::none) {
    refuse(text(name, ".quantize is ", name_of(payload.quantize), " for opaque rows, which are quantised already"));
  } else if (payload.row_bytes <= 0 || payload.row_bytes % kRowUnitBytes != 0 || payload.row_bytes > kMaxCount) {
    refuse(text(name, ".row_bytes is ", payload.row_bytes,
                "; expected the bytes of one opaque row, a multiple of 16 below 2^31; pad the row"));
  }
}

void check_combine_types(std::size_t index, const CombineTypes& types, i64 hidden) {
  for (const DataType type : {types.expert_output, types.output}) {
    if (!is_known(type) || type == DataType::bytes) {
      refuse(text("ExchangeConfig::combine_types[", index, "] has the type ",
                  is_known(type) ? name_of(type) : std::string_view("?"),
                  "; combine computes on bf16, fp16 or fp32 only"));
    }
    const i64 element_bytes = static_cast<i64>(size_of(type));
    check_row_bytes(text("rows of ", name_of(type), " in combine"), hidden * element_bytes, hidden, element_bytes);
  }
}

void check_alignment(int alignment) {
  if (alignment < 1 || alignment > kLargestAlignment || !std::has_single_bit(static_cast<unsigned>(alignment))) {
    refuse(text("ExchangeConfig::max_alignment is ", alignment, "; expected a power of two, 1 .. ", kLargestAlignment));
  }
}

void check_sum(const ExchangeConfig& config, const ExchangeShape& shape) {
  const std::string_view sum = name_of(config.tensor_parallel_sum);
  if (sum == "?") {
    refuse(text("ExchangeConfig::tensor_parallel_sum is ", static_cast<int>(config.tensor_parallel_sum),
                ", which is no TensorParallelSum"));
  }
  if (shape.mode != Mode::tensor_parallel && config.tensor_parallel_sum != TensorParallelSum::automatic) {
    refuse(
        text("ExchangeConfig::tensor_parallel_sum is ", sum, " in mode ", name_of(shape.mode), "; leave it automatic"));
  }
  if (config.tensor_parallel_sum == TensorParallelSum::nvls && config.deterministic) {
    refuse(
        "ExchangeConfig::tensor_parallel_sum is nvls and deterministic is true, but the switch sums in an order of its "
        "own; set deterministic = false, or name another");
  }
}

/// What concerns several ranks.
void check_groups(const ExchangeConfig& config, const ExchangeShape& shape) {
  const bool sends_rows = shape.mode == Mode::nvlink || shape.mode == Mode::p2p;
  const std::string_view mode = name_of(shape.mode);
  if (config.tp_size < 1 || shape.num_ranks % config.tp_size != 0) {
    refuse(
        text("ExchangeConfig::tp_size is ", config.tp_size, "; expected a divisor of the ", shape.num_ranks, " ranks"));
  }
  if (!sends_rows && config.tp_size != 1) {
    refuse(text("ExchangeConfig::tp_size is ", config.tp_size, " in mode ", mode,
                ", in which all ranks are one group; leave it 1"));
  }
  if (shape.mode == Mode::local && config.fp32_partials) {
    refuse(text("ExchangeConfig::fp32_partials is set in mode ", mode,
                ", in which a rank has the whole sum and keeps it in fp32 until it is complete; leave it false"));
  }
  check_sum(config, shape);
  if (config.num_physical_experts == 0) {
    if (config.max_replicas != 1) {
      refuse(text("ExchangeConfig::max_replicas is ", config.max_replicas,
                  " without num_physical_experts; set that as well, or leave it 1"));
    }
    return;
  }
  check_range("num_physical_experts", config.num_physical_experts, config.num_experts, kMaxExperts,
              "at least a place for every expert, or 0 if each lives in one place");
  check_range("max_replicas", config.max_replicas, 1, config.num_physical_experts, "the most places of one expert");
  if (!sends_rows) {
    throw Error(ErrorCode::unsupported,
                text("ExchangeConfig::num_physical_experts is ", config.num_physical_experts, " in mode ", mode,
                     "; experts live in several places in nvlink and p2p only: leave it 0"));
  }
}

/// Mode, ranks, and which experts are here.
ExchangeShape shape_of_ranks(const ExchangeConfig& config, const Communicator& communicator) {
  ExchangeShape shape{
      .mode = choose_mode(config, communicator.topology()),
      .rank = communicator.rank(),
      .num_ranks = communicator.size(),
      .num_experts = config.num_experts,
      .num_places = config.num_physical_experts != 0 ? config.num_physical_experts : config.num_experts};
  check_groups(config, shape);
  if (shape.mode == Mode::p2p) shape.nodes = nodes_of_ranks(communicator.topology());
  if (!shape.nodes.empty() && config.tp_size != 1) {
    throw Error(ErrorCode::unsupported, text("ExchangeConfig::tp_size is ", config.tp_size,
                                             " in mode p2p over several nodes, which has no groups; "
                                             "leave it 1, or give every node an Exchange of its own"));
  }
  const bool sends_rows = shape.mode == Mode::nvlink || shape.mode == Mode::p2p;
  shape.num_sources = sends_rows ? shape.num_ranks / config.tp_size : 1;
  shape.first_expert = first_expert_of(shape.rank, shape.num_ranks, shape.num_places);
  shape.num_local_experts = first_expert_of(shape.rank + 1, shape.num_ranks, shape.num_places) - shape.first_expert;
  shape.num_kernel_experts = max_of(shape.num_local_experts, i64{1});
  return shape;
}

/// Every entry lands here, and each expert that has rows is padded by at most alignment - 1.
i64 worst_case_rows(i64 max_entries, i64 num_local_experts, i64 alignment) {
  return round_up(max_entries + min_of(num_local_experts, max_entries) * (alignment - 1), alignment);
}

i64 packed_rows(const ExchangeConfig& config, const ExchangeShape& shape) {
  if (config.max_rows.is_worst_case()) {
    if (shape.num_local_experts == 0) return config.max_alignment;
    const i64 rows =
        worst_case_rows(shape.max_entries * shape.num_sources, shape.num_local_experts, config.max_alignment);
    if (rows > kMaxCount) {
      refuse(text("ExchangeConfig::max_rows is worst_case, which is ", rows,
                  " rows here; rows are numbered below 2^31: give the number of rows to hold"));
    }
    return rows;
  }
  check_range("max_rows", config.max_rows.rows(), 0, kMaxCount, "the rows that the packed layout can hold");
  if (config.max_rows.rows() % config.max_alignment != 0) {
    refuse(text("ExchangeConfig::max_rows is ", config.max_rows.rows(), ", which is not a multiple of max_alignment ",
                config.max_alignment, "; use ", round_up<i64>(config.max_rows.rows(), config.max_alignment)));
  }
  return config.max_rows.rows();
}

i64 batched_rows(const ExchangeConfig& config, i64 num_local_experts) {
  check_range("max_rows_per_expert", config.max_rows_per_expert, 0, kMaxCount, "the capacity of one expert");
  const i64 rows = config.max_rows_per_expert * num_local_experts;
  if (rows > kMaxCount) {
    refuse(text("ExchangeConfig::max_rows_per_expert is ", config.max_rows_per_expert, ", in all ", rows, " rows for ",
                num_local_experts, " experts; rows are numbered below 2^31: lower it to at most ",
                kMaxCount / num_local_experts));
  }
  return rows;
}

/// The bytes of all buffers are counted by 64-bit integers; a quarter of their range is far more than any device has.
void check_total(const ExchangeShape& shape, const ExchangeConfig& config) {
  constexpr i64 kMostBytes = std::numeric_limits<i64>::max() / 4;
  const i64 bytes_per_row = (config.own_rows ? shape.max_row_bytes : 0) + shape.max_scale_bytes +
                            (config.own_expert_output ? shape.max_output_row_bytes : 0);
  if (bytes_per_row > 0 && shape.row_capacity > kMostBytes / bytes_per_row) {
    throw Error(ErrorCode::capacity, text("ExchangeConfig asks for ", shape.row_capacity, " rows of ", bytes_per_row,
                                          " bytes, more than 2^61 bytes in all; lower max_rows, max_rows_per_expert or "
                                          "max_tokens"));
  }
}

}  // namespace

ExchangeShape check_config(const ExchangeConfig& config, const Communicator& communicator) {
  check_range("num_experts", config.num_experts, 1, kMaxExperts, "the experts of all ranks");
  check_range("top_k", config.top_k, 1, kMaxTopK, "the experts of one token");
  check_range("hidden", config.hidden, 1, kMaxCount, "the elements of one row");
  check_range("max_tokens", config.max_tokens, 1, kMaxCount, "the most tokens of one dispatch");
  const i64 max_entries = config.max_tokens * config.top_k;
  if (max_entries > kMaxCount) {
    refuse(text("ExchangeConfig::max_tokens is ", config.max_tokens, ", with top_k ", config.top_k, " that is ",
                max_entries, " entries; entries are numbered below 2^31: lower max_tokens to at most ",
                kMaxCount / config.top_k, " and dispatch in parts"));
  }
  check_alignment(config.max_alignment);
  if (config.payloads.empty()) refuse("ExchangeConfig::payloads is empty; declare what dispatch will carry");
  if (config.combine_types.empty()) refuse("ExchangeConfig::combine_types is empty; every dispatch is combined");
  if (!config.transport.empty()) (void)put_kind_of(config.transport, "ExchangeConfig::transport");

  ExchangeShape shape = shape_of_ranks(config, communicator);
  shape.top_k = config.top_k;
  shape.hidden = config.hidden;
  shape.max_tokens = config.max_tokens;
  shape.max_entries = max_entries;
  bool any_typed = false;
  for (std::size_t i = 0; i < config.payloads.size(); ++i) {
    const Payload& payload = config.payloads[i];
    check_payload(i, payload, config.hidden);
    const Payload as_carried = carried(payload, config.hidden);
    const i64 row_bytes = row_bytes_of(as_carried, config.hidden);
    any_typed = any_typed || as_carried.type != DataType::bytes;
    shape.max_row_bytes = max_of(shape.max_row_bytes, row_bytes);
    shape.max_scale_bytes = max_of(shape.max_scale_bytes, as_carried.scale_bytes);
    if (payload.quantize != Quantization::none) {
      shape.max_quantized_bytes =
          max_of(shape.max_quantized_bytes, row_bytes + round_up(as_carried.scale_bytes, kRowUnitBytes));
    }
  }
  if (config.weights_on_input && !any_typed) {
    refuse(
        "ExchangeConfig::weights_on_input is set, but every payload is opaque and cannot be multiplied; clear it or "
        "declare a typed payload");
  }
  for (std::size_t i = 0; i < config.combine_types.size(); ++i) {
    const CombineTypes& types = config.combine_types[i];
    check_combine_types(i, types, config.hidden);
    shape.max_output_row_bytes =
        max_of(shape.max_output_row_bytes, config.hidden * static_cast<i64>(size_of(types.expert_output)));
  }
  if (!config.max_rows.is_worst_case() && config.max_rows.rows() == 0 && config.max_rows_per_expert == 0) {
    refuse(
        "ExchangeConfig::max_rows and max_rows_per_expert are both 0, so that no layout can be used; set max_rows for "
        "packed, max_rows_per_expert for batched");
  }
  shape.max_rows = packed_rows(config, shape);
  shape.max_rows_per_expert = config.max_rows_per_expert;
  shape.row_capacity = max_of(shape.max_rows, batched_rows(config, shape.num_kernel_experts));
  check_total(shape, config);
  return shape;
}

Payload carried(const Payload& payload, i64 hidden) {
  const QuantFormat format = format_of(payload.quantize);
  if (format == QuantFormat::none) return payload;
  return {.type = DataType::bytes,
          .row_bytes = quant_bytes(format, hidden),
          .scale_bytes = quant_scale_bytes(format, hidden)};
}

ExchangeConfig carried_config(const ExchangeConfig& config) {
  ExchangeConfig as_carried = config;
  for (Payload& payload : as_carried.payloads) payload = carried(payload, config.hidden);
  return as_carried;
}

std::vector<ConfigField> fields_of(const ExchangeConfig& config) {
  std::string payloads;
  for (const Payload& payload : config.payloads) {
    payloads += text(payloads.empty() ? "" : "; ", describe(payload, config.hidden));
  }
  std::string combine_types;
  for (const CombineTypes& types : config.combine_types) {
    combine_types +=
        text(combine_types.empty() ? "" : "; ", name_of(types.expert_output), " to ", name_of(types.output));
  }
  const auto word = [](bool value) { return std::string(value ? "true" : "false"); };
  const std::string max_rows = config.max_rows.is_worst_case() ? "worst_case" : std::to_string(config.max_rows.rows());
  return {{"mode", std::string(name_of(config.mode))},
          {"replicated_inputs", word(config.replicated_inputs)},
          {"tp_size", std::to_string(config.tp_size)},
          {"tensor_parallel_sum", std::string(name_of(config.tensor_parallel_sum))},
          {"deterministic", word(config.deterministic)},
          {"fp32_partials", word(config.fp32_partials)},
          {"num_physical_experts", std::to_string(config.num_physical_experts)},
          {"max_replicas", std::to_string(config.max_replicas)},
          {"num_experts", std::to_string(config.num_experts)},
          {"top_k", std::to_string(config.top_k)},
          {"hidden", std::to_string(config.hidden)},
          {"max_tokens", std::to_string(config.max_tokens)},
          {"max_rows", max_rows},
          {"max_rows_per_expert", std::to_string(config.max_rows_per_expert)},
          {"max_alignment", std::to_string(config.max_alignment)},
          {"payloads", payloads},
          {"combine_types", combine_types},
          {"weights_on_input", word(config.weights_on_input)},
          {"own_rows", word(config.own_rows)},
          {"own_expert_output", word(config.own_expert_output)},
          {"transport", config.transport}};
}

std::string describe(const Payload& payload, i64 hidden) {
  std::string words = payload.type == DataType::bytes ? text("opaque rows of ", payload.row_bytes, " bytes")
                                                      : text(name_of(payload.type), " rows of ", hidden, " elements");
  if (payload.scale_bytes != 0) words += text(" with ", payload.scale_bytes, " scale bytes");
  if (payload.quantize != Quantization::none) words += text(" quantised to ", name_of(payload.quantize));
  return words;
}

}  // namespace moelink
