#include "exchange/modes/remote_memory.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "exchange/modes/nvlink_memory.hpp"
#include "moelink/error.hpp"
#include "moelink/protocol/pump_scratch.hpp"
#include "transports/proxy/channel.hpp"

namespace moelink {
namespace {

/// Bytes of a chunk, if slots are that small: enough for a NIC to be busy with one put while the next is posted, little
/// enough that several ranks are served in turns.
constexpr i64 kChunkBytes = 64 << 10;
constexpr i64 kMostRowChunks = (i64{1} << PutImmediate::kChunkBits) - kFirstRowChunk;

int number_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

std::vector<int> remotes_of(const std::vector<int>& nodes, int rank) {
  std::vector<int> remotes;
  for (int other = 0; other < std::ssize(nodes); ++other) {
    if (nodes[other] != nodes[rank]) remotes.push_back(other);
  }
  return remotes;
}
std::vector<RankRoute> routes_of_ranks(const std::vector<int>& nodes, int rank) {
  const std::vector<int> remotes = remotes_of(nodes, rank);
  std::vector<RankRoute> routes(nodes.size());
  int num_peers = 0;
  for (int other = 0; other < std::ssize(nodes); ++other) {
    if (nodes[other] == nodes[rank]) {
      routes[other].peer = num_peers++;
    } else {
      routes[other] = {.remote = number_in(remotes, other), .there = number_in(remotes_of(nodes, other), rank)};
    }
  }
  return routes;
}

std::vector<i32> sources_in_order(const std::vector<int>& nodes, int rank) {
  const int num_ranks = static_cast<int>(nodes.size());
  std::vector<i32> sources;
  for (int i = 1; i <= num_ranks; ++i) sources.push_back((rank + num_ranks - i) % num_ranks);
  std::stable_partition(sources.begin(), sources.end() - 1, [&](i32 other) { return nodes[other] == nodes[rank]; });
  return sources;
}

i64 widest_row_bytes(const ExchangeShape& shape, const ExchangeConfig& config) {
  i64 widest = 0;
  for (const Payload& payload : config.payloads) {
    const Payload as_carried = carried(payload, shape.hidden);
    widest = max_of(widest, row_bytes_of(as_carried, shape.hidden) + as_carried.scale_bytes);
  }
  return widest;
}

RemotePlan RemotePlan::of(const NvlinkShape& shape, i64 widest_row_bytes) {
  const i64 slot_bytes = remote_slot_bytes(widest_row_bytes, shape.top_k);
  const auto chunks = [&](int log2) { return ceil_div(shape.max_tokens, i64{1} << log2); };
  // A sender of many tokens packs a chunk as one batch.
  int log2 = PumpScratch::kLog2BatchRows;
  while (log2 > 0 && max_of(slot_bytes, shape.partial_pitch_bytes) << log2 > kChunkBytes &&
         chunks(log2 - 1) <= kMostRowChunks) {
    --log2;
  }
  if (chunks(log2) > kMostRowChunks) {
    throw Error(ErrorCode::invalid_argument, text("ExchangeConfig::max_tokens is ", shape.max_tokens,
                                                  ", too many for mode p2p: chunks of rows have 16 "
                                                  "bits; lower it to at most ",
                                                  kMostRowChunks << log2, " and dispatch in parts"));
  }
  return {.shape = {.dispatch_header_bytes = i64{shape.header_words()} * 8,
                    .combine_header_bytes = i64{CombineHeader::kWords} * 8,
                    .slots_bytes = shape.max_tokens * slot_bytes,
                    .partials_bytes = shape.max_tokens * shape.partial_pitch_bytes},
          .log2_slots_per_chunk = log2,
          .max_chunks = static_cast<int>(kFirstRowChunk + chunks(log2))};
}

RemoteArgs RemotePlan::args_of(const std::vector<int>& nodes, int rank) const {
  const auto num_remotes = static_cast<i32>(remotes_of(nodes, rank).size());
  return {.num_peers = static_cast<i32>(nodes.size()) - 1 - num_remotes,
          .num_remotes = num_remotes,
          .log2_slots_per_chunk = log2_slots_per_chunk,
          .send_layout = shape.send_layout(),
          .receive_layout = shape.receive_layout()};
}

RemoteTables RemoteTables::of(int num_ranks, int num_remotes, int max_chunks) {
  Carver carver;
  RemoteTables tables;
  tables.routes = carver.take<RankRoute>(num_ranks);
  tables.sources = carver.take<i32>(num_ranks);
  tables.pieces = carver.take<u32>(i64{num_remotes} * max_chunks);
  tables.relayed = carver.take<u64>(i64{kRowPhases} * num_ranks * max_chunks);
  tables.free = carver.take<u64>(kRowPhases);
  tables.total_bytes = carver.total_bytes();
  return tables;
}

void add_remote_memory(const ExchangeShape& shape, const ExchangeConfig& config, MemoryReport& report) {
  const NvlinkShape wire = nvlink_shape(shape, config);
  const i64 row_bytes = widest_row_bytes(shape, config);
  const RemotePlan plan = RemotePlan::of(wire, row_bytes);
  const int num_remotes = shape.num_remotes();
  const std::string remotes = text("remotes ", num_remotes);
  const std::string rows =
      text("max_tokens ", wire.max_tokens, " * slot ", remote_slot_bytes(row_bytes, wire.top_k), " B");
  const std::string partials = text("max_tokens ", wire.max_tokens, " * partial row ", wire.partial_pitch_bytes, " B");
  const auto add = [&](const char* name, const std::string& formula, i64 bytes) {
    report.items.push_back({name, formula, bytes, "puts"});
  };
  add("rows from remotes",
      text(remotes, " * (", rows, " + ", partials, " + headers, each a multiple of ", kPlaceAlignmentBytes, " B)"),
      num_remotes * plan.shape.receive_layout().pitch_bytes);
  add("rows for remotes",
      text(remotes, " * (max(", rows, ", ", partials, ") + headers, each a multiple of ", kPlaceAlignmentBytes, " B)"),
      num_remotes * plan.shape.send_layout().pitch_bytes);
  add("routes to ranks, pieces of chunks and flags once more",
      text("ranks ", wire.num_ranks, " * 16 B, ", remotes, " * chunks ", plan.max_chunks, " * 4 B, ", kRowPhases,
           " phases * ranks * chunks * 8 B, each a multiple of ", kPlaceAlignmentBytes, " B"),
      RemoteTables::of(wire.num_ranks, num_remotes, plan.max_chunks).total_bytes);
  const PutChannel::Memory channel = PutChannel::memory({.max_chunks = plan.max_chunks}, wire.num_ranks, num_remotes);
  add("flags and ring of puts",
      text(kPutPhases, " phases * ranks ", wire.num_ranks, " * chunks ", plan.max_chunks,
           " * 8 B, and 64 B for each of at most 4096 puts"),
      channel.shared_bytes + channel.device_bytes);
}

}  // namespace moelink
