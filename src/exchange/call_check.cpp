#include "exchange/call_check.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <source_location>

#include "base/refuse.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// A maximum that was declared at construction does not suffice.
[[noreturn]] void refuse_capacity(const std::string& sentence,
                                  const std::source_location& where = std::source_location::current()) {
  throw Error(ErrorCode::capacity, sentence, where);
}

/// A view and its name in the public structs, "DispatchArgs::tokens".
struct NamedView {
  const char* name;
  const MatrixView& view;
};

void check_pointer(const char* name, const void* pointer, i64 unit_bytes, bool needed) {
  if (pointer == nullptr) {
    if (needed) refuse(text(name, " is null; expected memory of the Exchange's device"));
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(unit_bytes) != 0) {
    refuse(text(name, " is ", pointer, ", which is not aligned to ", unit_bytes, " bytes; move its start"));
  }
}

void check_matrix(const NamedView& named, DataType type, i64 columns, i64 unit_bytes) {
  const auto& [name, view] = named;
  if (view.type != type) {
    refuse(text(name, " is ", name_of(view.type), "; expected ", name_of(type)));
  }
  if (view.columns != columns) {
    refuse(text(name, " has ", view.columns, " columns; expected ", columns));
  }
  if (view.rows < 0) refuse(text(name, " has ", view.rows, " rows; expected 0 or more"));
  const i64 stride_bytes = view.stride_bytes();
  if (stride_bytes < view.row_bytes()) {
    refuse(text(name, " has a row stride of ", stride_bytes, " bytes; expected at least the row, ", view.row_bytes(),
                " bytes, or 0 for dense rows"));
  }
  if (stride_bytes % unit_bytes != 0) {
    refuse(text(name, " has a row stride of ", stride_bytes, " bytes, which is not a multiple of ", unit_bytes,
                "; pad the rows to ", round_up(stride_bytes, unit_bytes)));
  }
  if (view.rows > 0 && stride_bytes > std::numeric_limits<i64>::max() / view.rows) {
    refuse(text(name, " has ", view.rows, " rows at a stride of ", stride_bytes, " bytes, more than 2^63 bytes"));
  }
  check_pointer(name, view.data, unit_bytes, view.rows > 0);
}

/// Whether two views share a byte. Views that lie side by side in the rows of one larger matrix do not.
bool overlap(const MatrixView& a, const MatrixView& b) {
  if (a.rows == 0 || b.rows == 0) return false;
  const auto first = [](const MatrixView& v) { return reinterpret_cast<std::uintptr_t>(v.data); };
  const auto last = [&](const MatrixView& v) {
    return first(v) + static_cast<std::uintptr_t>((v.rows - 1) * v.stride_bytes() + v.row_bytes());
  };
  if (last(a) <= first(b) || last(b) <= first(a)) return false;
  if (a.stride_bytes() != b.stride_bytes()) return true;
  const i64 stride = a.stride_bytes();
  const i64 distance = static_cast<i64>(first(b) - first(a)) % stride;
  const i64 to_b = distance < 0 ? distance + stride : distance;  // from a's columns right to b's, modulo the row
  return to_b < a.row_bytes() || stride - to_b < b.row_bytes();
}

void check_apart(const NamedView& input, const NamedView& output) {
  if (overlap(input.view, output.view)) {
    refuse(text(input.name, " (", input.view.data, ") and ", output.name, " (", output.view.data,
                ") overlap; expected separate memory: rows are written while others are read"));
  }
}

std::string declared_payloads(const ExchangeConfig& config) {
  std::string words;
  for (const Payload& payload : config.payloads) {
    words += text(words.empty() ? "" : "; ", describe(payload, config.hidden));
  }
  return words;
}

std::size_t find_payload(const DispatchArgs& args, const ExchangeConfig& config) {
  const i64 scale_bytes = args.scales.columns;
  for (std::size_t i = 0; i < config.payloads.size(); ++i) {
    const Payload& payload = config.payloads[i];
    const i64 columns = payload.type == DataType::bytes ? payload.row_bytes : config.hidden;
    if (payload.type == args.tokens.type && columns == args.tokens.columns && payload.scale_bytes == scale_bytes &&
        payload.quantize == args.quantize) {
      return i;
    }
  }
  refuse(text("DispatchArgs::tokens has ", name_of(args.tokens.type), " rows of ", args.tokens.columns,
              " elements and DispatchArgs::scales ", scale_bytes, " columns, to be quantised to ",
              name_of(args.quantize),
              "; expected one of the payloads declared at construction: ", declared_payloads(config)));
}

void check_routing_inputs(const DispatchArgs& args, const ExchangeConfig& config) {
  const bool any = args.tokens.rows > 0;
  if (args.expert_ids.type != IndexType::int32 && args.expert_ids.type != IndexType::int64) {
    refuse(text("DispatchArgs::expert_ids.type is ", static_cast<int>(args.expert_ids.type), ", no IndexType"));
  }
  check_pointer("DispatchArgs::expert_ids.data", args.expert_ids.data, static_cast<i64>(size_of(args.expert_ids.type)),
                any);
  if (any && args.weights == nullptr && args.weight_mode != WeightMode::none) {
    refuse(text("DispatchArgs::weights is null with WeightMode::", name_of(args.weight_mode), "; expected [",
                args.tokens.rows, ", ", config.top_k, "] floats, or WeightMode::none"));
  }
  check_pointer("DispatchArgs::weights", args.weights, alignof(float), false);
  check_pointer("DispatchArgs::num_tokens", args.num_tokens, alignof(std::int32_t), false);
  check_pointer("DispatchArgs::tensor_scale", args.tensor_scale, alignof(float), false);
  check_pointer("DispatchArgs::expert_map", args.expert_map, alignof(std::int32_t), config.num_physical_experts != 0);
  if (config.num_physical_experts == 0 && args.expert_map != nullptr) {
    refuse(
        "DispatchArgs::expert_map is given, but ExchangeConfig::num_physical_experts is 0: every expert lives in one "
        "place; set it at construction, or leave the map null");
  }
}

bool brings_rows(const DispatchArgs& args) { return args.rows.data != nullptr || args.rows.rows != 0; }

/// How many rows the caller's buffer offers, in the unit of RoutingState::capacity.
i64 offered_capacity(const DispatchArgs& args, const ExchangeShape& shape) {
  if (args.layout == Layout::packed) {
    const i64 rows = args.rows.rows / args.alignment * args.alignment;
    return min_of(rows, shape.max_rows);
  }
  if (shape.num_local_experts == 0) return 0;
  if (args.rows.rows % shape.num_local_experts != 0) {
    refuse(text("DispatchArgs::rows has ", args.rows.rows, " rows; batched rows need the same number for each of ",
                shape.num_local_experts, " experts, a multiple of that"));
  }
  return min_of(args.rows.rows / shape.num_local_experts, shape.max_rows_per_expert);
}

RoutingState new_routing(const DispatchArgs& args, const ExchangeConfig& config, const ExchangeShape& shape) {
  check_routing_inputs(args, config);
  RoutingState routing{.num_tokens = args.tokens.rows, .layout = args.layout, .weight_mode = args.weight_mode};
  if (args.layout == Layout::packed) {
    if (shape.max_rows == 0) {
      refuse("DispatchArgs::layout is packed, but ExchangeConfig::max_rows is 0; set it at construction");
    }
    if (args.alignment < 1 || !std::has_single_bit(static_cast<unsigned>(args.alignment))) {
      refuse(text("DispatchArgs::alignment is ", args.alignment, "; expected a power of two"));
    }
    if (args.alignment > config.max_alignment) {
      refuse_capacity(text("DispatchArgs::alignment is ", args.alignment, "; ExchangeConfig::max_alignment is ",
                           config.max_alignment, ": raise it"));
    }
    routing.alignment = args.alignment;
    routing.capacity = shape.max_rows;
  } else if (args.layout == Layout::batched) {
    if (shape.max_rows_per_expert == 0) {
      refuse("DispatchArgs::layout is batched, but ExchangeConfig::max_rows_per_expert is 0; set it at construction");
    }
    routing.capacity = shape.max_rows_per_expert;
  } else {
    refuse(text("DispatchArgs::layout is ", static_cast<int>(args.layout), ", which is no Layout"));
  }
  if (brings_rows(args)) routing.capacity = offered_capacity(args, shape);
  return routing;
}

RoutingState reused_routing(const DispatchArgs& args, const ExchangeShape& shape, const RoutingState& last) {
  if (args.tokens.rows != last.num_tokens) {
    refuse(text("DispatchArgs::tokens has ", args.tokens.rows, " rows; the routing to be reused is for ",
                last.num_tokens, ": pass as many, or route anew"));
  }
  const i64 rows = rows_of(last, shape.num_local_experts);
  if (brings_rows(args) && args.rows.rows < rows) {
    refuse(text("DispatchArgs::rows has ", args.rows.rows, " rows; the routing to be reused needs ", rows));
  }
  return last;
}

void check_weight_mode(WeightMode mode, const Payload& payload, const ExchangeConfig& config) {
  if (mode != WeightMode::on_combine && mode != WeightMode::on_input && mode != WeightMode::none) {
    refuse(text("DispatchArgs::weight_mode is ", static_cast<int>(mode), ", which is no WeightMode"));
  }
  if (mode != WeightMode::on_input) return;
  if (!config.weights_on_input) {
    refuse("DispatchArgs::weight_mode is on_input; set ExchangeConfig::weights_on_input at construction to use it");
  }
  if (payload.type == DataType::bytes || payload.quantize != Quantization::none) {
    refuse("DispatchArgs::weight_mode is on_input, but opaque and quantised rows cannot be multiplied; use on_combine");
  }
}

void check_shared(const CombineArgs& args, const ExchangeShape& shape, const RoutingState& routing) {
  if (args.shared.data == nullptr && args.shared.rows == 0) return;
  if (shape.mode != Mode::local && shape.mode != Mode::tensor_parallel) {
    throw Error(ErrorCode::unsupported,
                text("CombineArgs::shared is given in mode ", name_of(shape.mode),
                     "; local and tensor_parallel add it: elsewhere write it to output, and set accumulate"));
  }
  const MatrixView output = args.output;
  const NamedView shared{"CombineArgs::shared", args.shared};
  check_matrix(shared, args.expert_output.type, shape.hidden, kRowUnitBytes);
  if (args.shared.rows != routing.num_tokens) {
    refuse(text("CombineArgs::shared has ", args.shared.rows, " rows; expected as many as the dispatch had tokens, ",
                routing.num_tokens));
  }
  check_apart(shared, {"CombineArgs::output", output});
}

}  // namespace

DispatchChoice check_dispatch(const DispatchArgs& args, const ExchangeConfig& config, const ExchangeShape& shape,
                              const RoutingState& last) {
  DispatchChoice choice{.payload = find_payload(args, config), .routing = {}};
  const Payload& payload = config.payloads[choice.payload];
  const i64 columns = args.tokens.columns;

  check_matrix({"DispatchArgs::tokens", args.tokens}, payload.type, columns, kRowUnitBytes);
  if (args.tokens.rows > shape.max_tokens) {
    refuse_capacity(text("DispatchArgs::tokens has ", args.tokens.rows, " rows; ExchangeConfig::max_tokens is ",
                         shape.max_tokens, ": dispatch in parts, or raise it"));
  }
  if (payload.scale_bytes != 0) {
    const NamedView scales{"DispatchArgs::scales", args.scales};
    check_matrix(scales, DataType::bytes, payload.scale_bytes, scale_unit_bytes(payload.scale_bytes));
    if (args.scales.rows != args.tokens.rows) {
      refuse(
          text("DispatchArgs::scales has ", args.scales.rows, " rows; expected as many as tokens, ", args.tokens.rows));
    }
  }
  if (brings_rows(args)) {
    const MatrixView rows = args.rows;
    const Payload row = carried(payload, config.hidden);
    check_matrix({"DispatchArgs::rows", rows}, row.type, row.type == DataType::bytes ? row.row_bytes : columns,
                 kRowUnitBytes);
    check_apart({"DispatchArgs::tokens", args.tokens}, {"DispatchArgs::rows", rows});
  } else if (!config.own_rows) {
    refuse("DispatchArgs::rows is null, but ExchangeConfig::own_rows is false; bring a rows buffer, or set it");
  }
  choice.routing = args.reuse_routing ? reused_routing(args, shape, last) : new_routing(args, config, shape);
  check_weight_mode(choice.routing.weight_mode, payload, config);
  if (args.max_sms < 0) refuse(text("DispatchArgs::max_sms is ", args.max_sms, "; expected 0 (no limit) or more"));
  return choice;
}

std::size_t check_combine(const CombineArgs& args, const ExchangeConfig& config, const ExchangeShape& shape,
                          const RoutingState& routing) {
  std::size_t index = 0;
  while (index < config.combine_types.size() &&
         config.combine_types[index] != CombineTypes{args.expert_output.type, args.output.type}) {
    ++index;
  }
  if (index == config.combine_types.size()) {
    refuse(text("CombineArgs reads ", name_of(args.expert_output.type), " and writes ", name_of(args.output.type),
                "; add that to ExchangeConfig::combine_types at construction"));
  }
  const MatrixView output = args.output;
  const NamedView from{"CombineArgs::expert_output", args.expert_output};
  const NamedView to{"CombineArgs::output", output};
  check_matrix(from, args.expert_output.type, shape.hidden, kRowUnitBytes);
  check_matrix(to, args.output.type, shape.hidden, kRowUnitBytes);
  if (output.rows != routing.num_tokens) {
    refuse(text("CombineArgs::output has ", output.rows, " rows; expected as many as the dispatch had tokens, ",
                routing.num_tokens));
  }
  check_apart(from, to);
  check_shared(args, shape, routing);
  if (args.max_sms < 0) refuse(text("CombineArgs::max_sms is ", args.max_sms, "; expected 0 (no limit) or more"));
  return index;
}

void check_apart_from_rows(const DispatchArgs& args, const MatrixView& rows, const MatrixView& row_scales,
                           const ExchangeConfig& config) {
  const i64 num_tokens = args.tokens.rows;
  const auto apart = [&](const char* name, const MatrixView& input) {
    if (input.data == nullptr) return;
    check_apart({name, input}, {"the batch's rows", rows});
    if (row_scales.data != nullptr) check_apart({name, input}, {"the batch's scales", row_scales});
  };
  const auto words = [&](const void* data, std::size_t word_bytes) -> MatrixView {
    return {data, DataType::bytes, num_tokens, config.top_k * static_cast<i64>(word_bytes)};
  };
  apart("DispatchArgs::tokens", args.tokens);
  apart("DispatchArgs::scales", args.scales);
  if (args.reuse_routing) return;
  apart("DispatchArgs::expert_ids", words(args.expert_ids.data, size_of(args.expert_ids.type)));
  apart("DispatchArgs::weights", words(args.weights, sizeof(float)));
}

void check_output_apart(const CombineArgs& args, const void* metadata, i64 metadata_bytes) {
  const MatrixView output = args.output;
  check_apart({"the Exchange's own metadata", {metadata, DataType::bytes, 1, metadata_bytes}},
              {"CombineArgs::output", output});
}

void check_stream(StreamView stream, Device device) {
  if (stream.device() != device) {
    refuse(
        text("the stream is on ", stream.device().name(), "; expected one on the Exchange's device, ", device.name()));
  }
  constexpr std::uintptr_t kLegacyStream = 1;  // CU_STREAM_LEGACY; null means the same
  if (device.is_cuda() && reinterpret_cast<std::uintptr_t>(stream.cuda_handle()) <= kLegacyStream) {
    refuse("the stream is the legacy default stream, on which work of several ranks would serialise; create a stream");
  }
  if (device.is_host() && stream.host_queue() == nullptr) {
    refuse("the stream is on the host but has no queue; take it from a moelink::Stream");
  }
}

}  // namespace moelink
