#include "kernels/nvlink_case.hpp"

#include <algorithm>
#include <thread>

#include "base/fault.hpp"
#include "exchange/modes/remote_memory.hpp"
#include "moelink/protocol/nvlink_prefill_scratch.hpp"
#include "transports/loopback/put.hpp"
#include "transports/proxy/proxy.hpp"
#include "transports/put_group.hpp"
#include "transports/ranks.hpp"

namespace moelink::test {
namespace {

constexpr unsigned char kUntouchedByte = 0xcd;

}  // namespace

/// One rank's way to the other nodes.
struct NvlinkRank::Remote {
  std::vector<RankRoute> routes;
  std::vector<i32> sources;
  std::vector<u32> pieces;
  std::vector<u64> relayed;
  std::vector<u64> free = std::vector<u64>(kRowPhases);
  Guarded send, receive;
  std::unique_ptr<PutProxy> proxy;
  std::unique_ptr<PutChannel> channel;
};

NvlinkShape NvlinkConfig::shape() const {
  const auto ranks_of = [&](int node) { return static_cast<i32>(std::count(nodes.begin(), nodes.end(), node)); };
  i32 node_ranks = 0;
  for (const int node : nodes) node_ranks = std::max(node_ranks, ranks_of(node));
  return {.num_ranks = num_ranks,
          .tp_size = tp_size,
          .node_ranks = node_ranks,
          .num_experts = static_cast<i32>(num_experts),
          .top_k = top_k,
          .max_tokens = max_tokens,
          .row_pitch_bytes = (row_bytes + scale_bytes + 15) / 16 * 16,
          .partial_pitch_bytes = partial_bytes,
          .result_pitch_bytes = partial_bytes,
          .line_tokens = nodes.empty() ? static_cast<i32>(std::min<i64>(line_tokens, max_tokens)) : 0};
}

NvlinkDispatchSpec NvlinkConfig::spec() const {
  return {.row_bytes = row_bytes,
          .scale_bytes = scale_bytes,
          .num_ranks = num_ranks,
          .tp_size = tp_size,
          .num_experts = static_cast<i32>(num_experts),
          .top_k = top_k,
          .threads = 1,
          .weighted = on_input,
          .has_remotes = !nodes.empty()};
}

NvlinkRank::NvlinkRank(const NvlinkConfig& given, int rank, int num_threads)
    : config(given), index(rank), team_(num_threads + (given.relays ? 1 : 0)) {
  const NvlinkShape shape = config.shape();
  const std::int64_t groups = config.num_groups();
  const std::int64_t slots = config.num_ranks * config.max_tokens;
  symmetric_ = Guarded(NvlinkLayout::of(shape).total_bytes, 0);
  epochs_ = Guarded(kNvlinkPhases * NvlinkTables::kEpochStride * 8, 0);
  slot_of_token_ = Guarded(slots * 4, 0xff);
  token_of_slot_ = Guarded(slots * 4, 0xff);
  num_sent_ = Guarded(config.num_ranks * 4, 0);
  num_received_ = Guarded(groups * 4, 0);
  source_tokens_ = Guarded(groups * 4, 0);
  received_token_ = Guarded(groups * config.max_tokens * 4, 0xff);
  row_of_entry_ = Guarded(groups * config.max_tokens * config.top_k * 4, 0xff);
  weight_of_entry_ = Guarded(groups * config.max_tokens * config.top_k * 4, 0xff);
  dropped_ = Guarded(groups * 4, 0);
  tickets_ = Guarded(8, 0);
  block_counts_ = Guarded(nvlink_prefill_workspace_words(config.spec(), num_threads) * 4, kUntouchedByte);

  args.shape = shape;
  args.layout = NvlinkLayout::of(shape);
  args.tables = {.epochs = epochs_.as<u64>(),
                 .slot_of_token = slot_of_token_.as<i32>(),
                 .token_of_slot = token_of_slot_.as<i32>(),
                 .num_sent = num_sent_.as<i32>(),
                 .num_received = num_received_.as<i32>(),
                 .source_tokens = source_tokens_.as<i32>(),
                 .received_token = received_token_.as<i32>(),
                 .row_of_entry = row_of_entry_.as<i32>(),
                 .weight_of_entry = weight_of_entry_.as<float>(),
                 .dropped = dropped_.as<i32>(),
                 .tickets = tickets_.as<u64>()};
  args.sends = 1;
  args.receives = 1;
}

NvlinkRank::~NvlinkRank() = default;

void NvlinkRank::connect(Rendezvous& meet) {
  remote_ = std::make_unique<Remote>();
  RemotePlan plan = RemotePlan::of(config.shape(), config.row_bytes + config.scale_bytes);
  plan.log2_slots_per_chunk = config.log2_slots_per_chunk;
  plan.max_chunks = static_cast<int>(kFirstRowChunk + ceil_div(config.max_tokens, i64{1} << plan.log2_slots_per_chunk));
  args.remote = plan.args_of(config.nodes, index);
  const std::vector<int> remotes = remotes_of(config.nodes, index);
  const i64 count = args.remote.num_remotes;
  remote_->routes = routes_of_ranks(config.nodes, index);
  remote_->sources = sources_in_order(config.nodes, index);
  remote_->pieces.assign(static_cast<std::size_t>(count * plan.max_chunks), 0);
  remote_->send = Guarded(count * args.remote.send_layout.pitch_bytes, kUntouchedByte);
  remote_->receive = Guarded(count * args.remote.receive_layout.pitch_bytes, 0);
  const PutOptions put{.rank = index, .num_ranks = config.num_ranks, .remotes = remotes};
  auto transport = make_loopback_put(put);
  connect_puts(meet, *transport);
  remote_->proxy = std::make_unique<PutProxy>(
      std::move(transport),
      PutProxyOptions{.put = put, .on_failure = [this](int, const std::string&) { request_abort(fault_record); }});
  const auto region = [](Guarded& memory) {
    return PutMemory{reinterpret_cast<std::byte*>(memory.data()), static_cast<std::size_t>(memory.size())};
  };
  remote_->channel = remote_->proxy->open(
      meet, {.regions = {region(remote_->send), region(remote_->receive)}, .max_chunks = plan.max_chunks});
  args.remote.routes = remote_->routes.data();
  args.remote.sources = remote_->sources.data();
  args.remote.pieces = remote_->pieces.data();
  if (config.relays) {
    remote_->relayed.assign(static_cast<std::size_t>(i64{kRowPhases} * config.num_ranks * plan.max_chunks), 0);
    args.remote.relayed = remote_->relayed.data();
    args.remote.free = remote_->free.data();
  }
  args.remote.send = remote_->send.data();
  args.remote.receive = remote_->receive.data();
  args.remote.channel = remote_->channel->view();
}

void NvlinkRank::begin(const NvlinkCall& given) {
  call = given;
  reused_ = false;
  status_before_ = status;
  expected = reference::route_rank(call.in, index);
  const reference::SourceInput& from = call.in.sources[call.in.source_of_rank(index)];
  const std::int64_t num_tokens = call.device_count ? config.max_tokens : from.num_tokens;
  const std::int64_t entries = num_tokens * config.top_k;
  ids_ = Guarded(entries * call.id_bytes, 0);
  weights_ = Guarded(entries * 4, 0);
  for (std::size_t i = 0; i < from.ids.size(); ++i) {
    if (call.id_bytes == 8) {
      ids_.as<std::int64_t>()[i] = from.ids[i];
    } else {
      ids_.as<std::int32_t>()[i] = static_cast<std::int32_t>(from.ids[i]);
    }
  }
  std::copy(from.weights.begin(), from.weights.end(), weights_.as<float>());
  map_ = call.in.expert_map;
  device_count_ = static_cast<std::int32_t>(from.num_tokens);

  const std::int64_t stride = config.row_bytes + call.row_gap_bytes;
  const std::int64_t experts = call.in.first_expert(index + 1) - call.in.first_expert(index);
  const std::int64_t total_rows = call.in.layout == Layout::packed ? call.in.capacity : call.in.capacity * experts;
  rows_ = Guarded(total_rows * stride, kUntouchedByte);
  row_scales_ = Guarded(total_rows * config.scale_bytes, kUntouchedByte);
  offsets_ = Guarded((experts + 1) * 8, kUntouchedByte);
  counts_ = Guarded(experts * 4, kUntouchedByte);
  expert_of_row_ = Guarded(total_rows * 4, kUntouchedByte);
  weight_of_row_ = Guarded(total_rows * 4, kUntouchedByte);
  source_of_row_ = Guarded(total_rows * 8, kUntouchedByte);

  args.local = {.tokens = nullptr,
                .token_stride_bytes = stride,
                .scales = nullptr,
                .scale_stride_bytes = config.scale_bytes,
                .expert_ids = ids_.data(),
                .id_bytes = call.id_bytes,
                .weights = from.weights.empty() ? nullptr : weights_.as<float>(),
                .device_num_tokens = call.device_count ? &device_count_ : nullptr,
                .num_tokens = static_cast<i32>(num_tokens),
                .parts = 1,
                .ring_bytes = 0,
                .every_block_counts = 0,
                .layout = call.in.layout == Layout::packed ? RowLayout::packed : RowLayout::batched,
                .alignment = static_cast<i32>(call.in.alignment),
                .zero_pads = call.zero_pads ? 1 : 0,
                .max_rows = call.in.capacity,
                .rows = rows_.data(),
                .row_stride_bytes = stride,
                .row_scales = config.scale_bytes != 0 ? row_scales_.data() : nullptr,
                .tensor_scale = nullptr,
                .offsets = offsets_.as<i64>(),
                .counts = counts_.as<i32>(),
                .expert_of_row = expert_of_row_.as<i32>(),
                .weight_of_row = weight_of_row_.as<float>(),
                .source_of_row = source_of_row_.as<i64>(),
                .row_of_entry = nullptr,
                .weight_of_entry = nullptr,
                .num_tokens_snapshot = &snapshot_,
                .grid_barrier = &grid_barrier_,
                .block_counts = block_counts_.as<u32>(),
                .phase = nullptr,
                .status = &status,
                .fault = args.local.fault};
  args.expert_map = map_.empty() ? nullptr : map_.data();
  args.num_logical_experts = static_cast<i32>(call.in.num_experts);
  args.max_replicas = call.in.max_replicas;
  args.format.reuse_routing = 0;
  set_tokens();
}

void NvlinkRank::begin_reuse(const NvlinkCall& given) {
  call.tokens = given.tokens;
  call.scales = given.scales;
  reused_ = true;
  status_before_ = status;
  args.format.reuse_routing = 1;
  args.local.expert_ids = nullptr;
  args.local.weights = nullptr;
  std::memset(rows_.data(), kUntouchedByte, rows_.size());
  std::memset(row_scales_.data(), kUntouchedByte, row_scales_.size());
  set_tokens();
}

void NvlinkRank::set_tokens() {
  const int source = call.in.source_of_rank(index);
  const std::int64_t count = call.in.sources[source].num_tokens;
  const std::int64_t stride = args.local.token_stride_bytes;
  tokens_ = Guarded(args.local.num_tokens * stride, 0);
  scales_ = Guarded(args.local.num_tokens * config.scale_bytes, 0);
  for (std::int64_t t = 0; t < count; ++t) {
    std::memcpy(tokens_.data() + t * stride, call.tokens[source].data() + t * config.row_bytes, config.row_bytes);
  }
  std::copy(call.scales[source].begin(), call.scales[source].end(), scales_.data());
  args.local.tokens = tokens_.data();
  args.local.scales = config.scale_bytes != 0 ? scales_.data() : nullptr;
}

void NvlinkRank::expect_dispatch() {
  const std::int64_t experts = static_cast<std::int64_t>(expected.rows.counts.size());
  const auto* offsets = offsets_.as<std::int64_t>();
  ASSERT_TRUE(std::equal(expected.rows.offsets.begin(), expected.rows.offsets.end(), offsets)) << "rank " << index;
  EXPECT_TRUE(std::equal(expected.rows.counts.begin(), expected.rows.counts.end(), counts_.as<std::int32_t>()));
  for (std::int64_t row = 0; row < expected.rows.offsets[experts]; ++row) {
    ASSERT_EQ(expected.rows.expert_of_row[row], expert_of_row_.as<std::int32_t>()[row])
        << "rank " << index << " row " << row;
    if (expected.rows.expert_of_row[row] < 0) continue;
    ASSERT_EQ(expected.rows.weight_of_row[row], weight_of_row_.as<float>()[row]) << "rank " << index << " row " << row;
    ASSERT_EQ(expected.rows.source_of_row[row], source_of_row_.as<std::int64_t>()[row])
        << "rank " << index << " row " << row;
  }
  expect_rows();
  expect_tables();
  expect_status();
  for (Guarded* buffer :
       {&symmetric_,     &rows_,          &row_scales_,     &offsets_,       &counts_,          &expert_of_row_,
        &weight_of_row_, &source_of_row_, &epochs_,         &slot_of_token_, &token_of_slot_,   &num_sent_,
        &num_received_,  &source_tokens_, &received_token_, &row_of_entry_,  &weight_of_entry_, &dropped_,
        &tickets_,       &block_counts_}) {
    EXPECT_TRUE(buffer->intact()) << "something was written outside a buffer of " << buffer->size() << " bytes";
  }
  if (remote_ != nullptr) {
    EXPECT_TRUE(remote_->send.intact() && remote_->receive.intact()) << "something was written outside of a region";
  }
}

void NvlinkRank::expect_rows() {
  std::vector<const unsigned char*> tokens;
  std::vector<const unsigned char*> scales;
  for (std::size_t source = 0; source < call.tokens.size(); ++source) {
    tokens.push_back(call.tokens[source].data());
    scales.push_back(call.scales[source].data());
  }
  std::vector<unsigned char> rows = reference::dispatch_rows(expected, config.top_k, tokens, config.row_bytes);
  if (config.on_input != Element::none) {
    reference::weight_rows(expected.rows, rows.data(), type_of(config.on_input),
                           config.row_bytes / bytes_of(config.on_input));
  }
  const std::vector<unsigned char> row_scales =
      reference::dispatch_rows(expected, config.top_k, scales, config.scale_bytes);
  const std::int64_t stride = args.local.row_stride_bytes;
  const auto untouched = [](unsigned char byte) { return byte == kUntouchedByte; };
  for (std::int64_t row = 0; row < expected.rows.offsets.back(); ++row) {
    const unsigned char* got = rows_.data() + row * stride;
    if (expected.rows.expert_of_row[row] < 0 && !call.zero_pads) {
      ASSERT_TRUE(std::all_of(got, got + stride, untouched)) << "rank " << index << " pad " << row;
      continue;
    }
    ASSERT_EQ(0, std::memcmp(got, rows.data() + row * config.row_bytes, config.row_bytes))
        << "rank " << index << " row " << row << " of source entry " << expected.rows.source_of_row[row];
    ASSERT_EQ(0, std::memcmp(row_scales_.data() + row * config.scale_bytes,
                             row_scales.data() + row * config.scale_bytes, config.scale_bytes))
        << "rank " << index << " row " << row;
    ASSERT_TRUE(std::all_of(got + config.row_bytes, got + stride, untouched)) << "behind row " << row;
  }
}

void NvlinkRank::expect_tables() {
  const int own = call.in.source_of_rank(index);
  const std::int64_t own_tokens = call.in.sources[own].num_tokens;
  for (int to = 0; to < config.num_ranks; ++to) {
    std::int64_t slots = 0;
    for (std::int64_t t = 0; t < own_tokens; ++t) {
      const bool goes = reference::goes_to(call.in, to, own, t);
      ASSERT_EQ(goes ? slots : -1, slot_of_token_.as<std::int32_t>()[to * config.max_tokens + t])
          << "token " << t << " of rank " << index << " at rank " << to;
      if (!goes) continue;
      ASSERT_EQ(t, token_of_slot_.as<std::int32_t>()[to * config.max_tokens + slots++]);
    }
    ASSERT_EQ(slots, num_sent_.as<std::int32_t>()[to]) << "rank " << index << " to rank " << to;
  }
  for (int from = 0; from < config.num_groups(); ++from) {
    std::int64_t slot = 0;
    for (std::int64_t t = 0; t < call.in.sources[from].num_tokens; ++t) {
      if (!reference::goes_to(call.in, index, from, t)) continue;
      const std::int64_t at = from * config.max_tokens + slot++;
      ASSERT_EQ(t, received_token_.as<std::int32_t>()[at]) << "rank " << index << " from source " << from;
      for (int k = 0; k < config.top_k; ++k) {
        const std::int64_t entry = t * config.top_k + k;
        const std::int64_t place = at * config.top_k + k;
        ASSERT_EQ(expected.row_of(from, entry), row_of_entry_.as<std::int32_t>()[place])
            << "rank " << index << " entry " << entry << " of source " << from;
        if (expected.row_of(from, entry) < 0) continue;
        const std::vector<float>& weights = call.in.sources[from].weights;
        ASSERT_EQ(weights.empty() ? 1.0F : weights[entry], weight_of_entry_.as<float>()[place]);
      }
    }
    ASSERT_EQ(slot, num_received_.as<std::int32_t>()[from]) << "rank " << index << " from source " << from;
    ASSERT_EQ(expected.dropped[from], dropped_.as<std::int32_t>()[from]) << "rank " << index << " from " << from;
  }
  EXPECT_EQ(own_tokens, snapshot_);
}

void NvlinkRank::expect_status() {
  const auto since = [&](u64 ExchangeStatus::*word) {
    return static_cast<std::int64_t>(status.*word - status_before_.*word);
  };
  EXPECT_EQ(reused_ ? 0 : expected.ids_out_of_range, since(&ExchangeStatus::ids_out_of_range));
  EXPECT_EQ(reused_ ? 0 : expected.rows.rows_over_capacity, since(&ExchangeStatus::rows_over_capacity));
  EXPECT_EQ(0, since(&ExchangeStatus::token_counts_clamped));
  EXPECT_EQ(0, since(&ExchangeStatus::peer_counts_clamped));
  EXPECT_EQ(0U, fault());
}

NvlinkRanks::NvlinkRanks(const NvlinkConfig& config, int threads_per_rank) {
  for (int rank = 0; rank < config.num_ranks; ++rank) {
    ranks_.push_back(std::make_unique<NvlinkRank>(config, rank, threads_per_rank));
  }
  for (const auto& rank : ranks_) {
    for (const auto& peer : ranks_) {
      const bool is_near = config.nodes.empty() || config.nodes[peer->index] == config.nodes[rank->index];
      rank->bases_.push_back(is_near ? peer->symmetric_.data() : nullptr);
      if (peer != rank) rank->peer_words_.push_back(&peer->fault_word);
    }
    Window& window = rank->args.window;
    window.rank = rank->index;
    window.num_ranks = config.num_ranks;
    window.size_bytes = rank->symmetric_.size();
    window.table = rank->bases_.data();
    for (int peer = 0; peer < std::min(config.num_ranks, kMaxInlineRanks); ++peer) {
      window.inline_bases[peer] = rank->bases_[static_cast<std::size_t>(peer)];
    }
    rank->args.local.fault = {.word = &rank->fault_word,
                              .record = &rank->fault_record,
                              .peer_words = rank->peer_words_.data(),
                              .num_peers = static_cast<i32>(rank->peer_words_.size()),
                              .rank = rank->index,
                              .timeout_ns = config.timeout_ns};
  }
  if (config.nodes.empty()) return;
  for (const std::string& failure : run_ranks(
           config.nodes, [&](Rendezvous& meet) { ranks_[static_cast<std::size_t>(meet.rank())]->connect(meet); })) {
    EXPECT_EQ(failure, "");
  }
}

/// All say farewell before any waits for it.
NvlinkRanks::~NvlinkRanks() {
  for (const auto& rank : ranks_) {
    if (rank->remote_ != nullptr) rank->remote_->proxy->leave(std::move(rank->remote_->channel), nullptr);
  }
}

void NvlinkRanks::each(const std::function<void(NvlinkRank&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks_) threads.emplace_back([&body, &rank] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace moelink::test
