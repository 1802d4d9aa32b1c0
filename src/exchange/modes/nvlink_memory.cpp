#include "exchange/modes/nvlink_memory.hpp"

#include <algorithm>
#include <limits>

#include "base/text.hpp"
#include "moelink/error.hpp"
#include "moelink/protocol/nvlink_prefill_plan.hpp"
#include "peers/peer_workspace.hpp"

namespace moelink {
namespace {

/// Widest partial row: of the expert output, or fp32.
i64 partial_row_bytes(const ExchangeShape& shape, const ExchangeConfig& config) {
  return config.fp32_partials ? shape.hidden * i64{sizeof(float)} : shape.max_output_row_bytes;
}

i64 result_row_bytes(const ExchangeShape& shape, const ExchangeConfig& config) {
  i64 bytes = 0;
  for (const CombineTypes& types : config.combine_types) {
    bytes = max_of(bytes, shape.hidden * static_cast<i64>(size_of(types.output)));
  }
  return bytes;
}

/// Its ranks; 0 if there are no nodes to tell apart.
i32 largest_node(const std::vector<int>& nodes) {
  i32 largest = 0;
  for (const int node : nodes) largest = max_of(largest, static_cast<i32>(std::ranges::count(nodes, node)));
  return largest;
}

/// What may arrive in one call is numbered by 32 bits, and blocks step past the last number by as many as they are.
void check_numbers(const NvlinkShape& shape) {
  constexpr i64 kMostBlocks = 1 << 16;
  constexpr i64 kMostNumbers = std::numeric_limits<i32>::max() - kMostBlocks;
  const i64 most = kMostNumbers / (i64{shape.num_ranks} * max_of(kMaxWireParts, shape.top_k));
  if (shape.max_tokens > most) {
    throw Error(ErrorCode::invalid_argument, text("ExchangeConfig::max_tokens is ", shape.max_tokens, ", too many for ",
                                                  shape.num_ranks, " ranks and top_k ", shape.top_k,
                                                  ": what may arrive in one call is numbered below 2^31; lower it "
                                                  "to at most ",
                                                  most, " and dispatch in parts"));
  }
}

}  // namespace

NvlinkShape nvlink_shape(const ExchangeShape& shape, const ExchangeConfig& config) {
  i64 row_pitch_bytes = 0;
  for (const Payload& payload : config.payloads) {
    row_pitch_bytes =
        max_of(row_pitch_bytes, round_up(row_bytes_of(payload, shape.hidden) + payload.scale_bytes, kRowUnitBytes));
  }
  const i64 partial_pitch_bytes = partial_row_bytes(shape, config);
  const i32 node_ranks = largest_node(shape.nodes);
  // A token's partials come from so many other ranks.
  const bool has_lines =
      node_ranks == 0 && !config.fp32_partials && shape.num_ranks / config.tp_size <= kMaxLineSources;
  const i64 most_others = has_lines ? min_of(shape.num_ranks - 1, shape.top_k) : 0;
  return {.num_ranks = shape.num_ranks,
          .tp_size = config.tp_size,
          .node_ranks = node_ranks,
          .num_experts = static_cast<i32>(shape.num_places),
          .top_k = shape.top_k,
          .max_tokens = shape.max_tokens,
          .row_pitch_bytes = row_pitch_bytes,
          .partial_pitch_bytes = partial_pitch_bytes,
          .result_pitch_bytes = result_row_bytes(shape, config),
          .line_tokens = line_tokens(shape.max_tokens, most_others, partial_pitch_bytes)};
}

NvlinkPrivateLayout NvlinkPrivateLayout::of(const NvlinkShape& shape, i64 block_count_words) {
  const i64 groups = shape.num_groups();
  Carver carver;
  NvlinkPrivateLayout layout;
  layout.epochs = carver.take<u64>(i64{kNvlinkPhases} * NvlinkTables::kEpochStride);
  layout.num_sent = carver.take<i32>(shape.num_ranks);
  layout.num_received = carver.take<i32>(groups);
  layout.source_tokens = carver.take<i32>(groups);
  layout.dropped = carver.take<i32>(groups);
  layout.tickets = carver.take<u64>(1);
  layout.zero_bytes = carver.total_bytes();
  layout.slot_of_token = carver.take<i32>(shape.num_ranks * shape.max_tokens);
  layout.token_of_slot = carver.take<i32>(shape.num_ranks * shape.max_tokens);
  layout.received_token = carver.take<i32>(groups * shape.max_tokens);
  layout.row_of_entry = carver.take<i32>(groups * shape.max_tokens * shape.top_k);
  layout.weight_of_entry = carver.take<float>(groups * shape.max_tokens * shape.top_k);
  layout.block_counts = carver.take<u32>(block_count_words);
  layout.total_bytes = carver.total_bytes();
  return layout;
}

NvlinkTables NvlinkPrivateLayout::tables(void* base) const {
  return {.epochs = epochs.in(base),
          .slot_of_token = slot_of_token.in(base),
          .token_of_slot = token_of_slot.in(base),
          .num_sent = num_sent.in(base),
          .num_received = num_received.in(base),
          .source_tokens = source_tokens.in(base),
          .received_token = received_token.in(base),
          .row_of_entry = row_of_entry.in(base),
          .weight_of_entry = weight_of_entry.in(base),
          .dropped = dropped.in(base),
          .tickets = tickets.in(base)};
}

i64 nvlink_block_count_words(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device) {
  return nvlink_prefill_workspace_words({.num_ranks = shape.num_ranks,
                                         .tp_size = config.tp_size,
                                         .num_experts = static_cast<i32>(shape.num_places),
                                         .top_k = shape.top_k},
                                        device);
}

void add_nvlink_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                       MemoryReport& report) {
  const NvlinkShape wire = nvlink_shape(shape, config);
  check_numbers(wire);
  const NvlinkLayout shared = NvlinkLayout::of(wire);
  const NvlinkPrivateLayout own = NvlinkPrivateLayout::of(wire, nvlink_block_count_words(shape, config, device));
  const std::string ranks = text("ranks ", wire.num_ranks);
  const std::string sources = text("sources ", wire.num_groups());
  const std::string tokens = text("max_tokens ", wire.max_tokens);
  const std::string entries = text(sources, " * ", tokens, " * top_k ", wire.top_k);

  i64 listed_bytes = 0;
  const auto add = [&](const char* where, const char* name, const std::string& formula, i64 bytes) {
    if (bytes != 0) report.items.push_back({name, formula, bytes, where});
    listed_bytes += bytes;
  };
  const auto add_padding = [&](const char* where, const std::string& what, i64 total_bytes) {
    add(where, "padding", what, total_bytes - listed_bytes);
    listed_bytes = 0;
  };
  const char* const in_shared = "shared";
  const std::string near_ranks = wire.node_ranks != 0 ? text("ranks of a node ", wire.node_ranks) : ranks;
  const std::string near_sources = wire.node_ranks != 0 ? near_ranks : sources;
  add(in_shared, "slot_rows", text(near_sources, " * ", tokens, " * (row and scales ", wire.row_pitch_bytes, " B)"),
      shared.slot_rows.bytes());
  add(in_shared, "slot_records", text(near_sources, " * ", tokens, " * ", slot_record_bytes(wire.top_k), " B"),
      shared.slot_records.bytes());
  add(in_shared, "partial_rows", text(near_ranks, " * ", tokens, " * partial row ", wire.partial_pitch_bytes, " B"),
      shared.partial_rows.bytes());
  add(in_shared, "partials as lines",
      text(ranks, " * tokens ", wire.line_tokens, " * ", kLineExpansion, " * partial row ", wire.partial_pitch_bytes,
           " B"),
      shared.line_partials.bytes());
  add(in_shared, "result_rows", text(tokens, " * output row ", wire.result_pitch_bytes, " B"),
      shared.result_rows.bytes());
  add(in_shared, "flags",
      text("(2 * ", near_ranks, wire.tp_size > 1 ? " + 1" : "", ") * ", tokens, " * ", kMaxWireParts, " * 8 B"),
      shared.dispatch_flags.bytes() + shared.combine_flags.bytes() + shared.result_flags.bytes());
  add(in_shared, "headers",
      text("(", ranks, " * ", wire.header_words(), " + ", near_ranks, " * ", CombineHeader::kWords, ") * 8 B"),
      shared.dispatch_headers.bytes() + shared.combine_headers.bytes());
  add_padding(in_shared, text("each buffer starts at a multiple of ", kPlaceAlignmentBytes, " B; fault word"),
              PeerWorkspace::memory_bytes(shared.total_bytes));

  const char* const in_private = device.is_host ? "host, nvlink" : "device, nvlink";
  add(in_private, "epochs and tickets", text("(", kNvlinkPhases, " * ", NvlinkTables::kEpochStride, " + 1) * 8 B"),
      own.epochs.bytes() + own.tickets.bytes());
  add(in_private, "slots of tokens", text("2 * ", ranks, " * ", tokens, " * 4 B"),
      own.slot_of_token.bytes() + own.token_of_slot.bytes());
  add(in_private, "received_token", text(sources, " * ", tokens, " * 4 B"), own.received_token.bytes());
  add(in_private, "rows and weights of entries", text(entries, " * (4 + 4) B"),
      own.row_of_entry.bytes() + own.weight_of_entry.bytes());
  add(in_private, "counts of slots", text("(", ranks, " + 3 * ", sources, ") * 4 B"),
      own.num_sent.bytes() + own.num_received.bytes() + own.source_tokens.bytes() + own.dropped.bytes());
  add(in_private, "block_counts",
      text("(blocks ", device.num_sms, " + 1) * roundup(physical experts ", wire.num_experts, " + ", ranks,
           " + 2, 4) * 4 B"),
      own.block_counts.bytes());
  add_padding(in_private, text("each buffer starts at a multiple of ", kPlaceAlignmentBytes, " B"), own.total_bytes);
}

}  // namespace moelink
