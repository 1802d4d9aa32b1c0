#include "exchange/ranks_case.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "moelink/error.hpp"

namespace moelink::test {
namespace {

std::int64_t row_bytes_of(const RanksShape& shape) {
  return shape.payload.type == DataType::bytes ? shape.payload.row_bytes
                                               : shape.hidden * static_cast<std::int64_t>(size_of(shape.payload.type));
}
std::int64_t columns_of(const RanksShape& shape) {
  return shape.payload.type == DataType::bytes ? shape.payload.row_bytes : shape.hidden;
}

Bytes random_bytes(std::int64_t count, std::mt19937& random) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

Bytes random_elements(DataType type, std::int64_t count, std::mt19937& random) {
  Bytes bytes(static_cast<std::size_t>(count) * size_of(type));
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) reference::store(bytes.data(), type, i, normal(random));
  return bytes;
}

/// The fault that a call met, if check() would not tell of data errors instead, which it tells once.
std::string fault_of(Exchange& exchange) {
  if (exchange.data_errors().any()) return "";
  try {
    exchange.check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::int64_t capacity_of(const RanksShape& shape) {
  if (shape.capacity >= 0) return shape.capacity;
  const std::int64_t entries = shape.num_sources() * shape.max_tokens * shape.top_k;
  if (shape.layout == Layout::batched) return std::max<std::int64_t>(entries, 1);
  const std::int64_t places = shape.num_physical_experts != 0 ? shape.num_physical_experts : shape.num_experts;
  const std::int64_t padded = entries + std::min(places, entries) * (shape.alignment - 1);
  return std::max<std::int64_t>((padded + shape.alignment - 1) / shape.alignment * shape.alignment, shape.alignment);
}

/// Rows that buffers of any rank need: a rank has at most ceil(places / ranks) experts.
std::int64_t most_rows(const RanksShape& shape) {
  if (shape.layout == Layout::packed) return capacity_of(shape);
  const std::int64_t places = shape.num_physical_experts != 0 ? shape.num_physical_experts : shape.num_experts;
  return capacity_of(shape) * std::max<std::int64_t>((places + shape.num_ranks - 1) / shape.num_ranks, 1);
}

std::int64_t draw_id(const RanksShape& shape, Routes routes, std::mt19937& random) {
  const auto any = static_cast<std::int64_t>(random() % shape.num_experts);
  switch (routes) {
    case Routes::uniform:
      return any;
    case Routes::one_expert:
      return shape.num_experts - 1;
    case Routes::one_rank:
      return any % std::max<std::int64_t>(shape.num_experts / shape.num_ranks, 1);
    case Routes::duplicates:
      return any % std::min<std::int64_t>(shape.num_experts, 3);
    case Routes::holes:
      return random() % 2 == 0 ? -1 : any;
    case Routes::garbage:
      if (random() % 4 == 0) return shape.num_experts + static_cast<std::int64_t>(random() % 100);
      return random() % 4 == 0 ? -2 - static_cast<std::int64_t>(random() % 100) : any;
  }
  return any;
}

/// Every logical expert has one to max_replicas places, drawn from all; now and then none, or one that does not exist.
std::vector<std::int32_t> draw_map(const RanksShape& shape, bool with_garbage, std::mt19937& random) {
  std::vector<std::int32_t> map(static_cast<std::size_t>(shape.num_experts * shape.max_replicas), -1);
  for (std::int64_t expert = 0; expert < shape.num_experts; ++expert) {
    const auto count = with_garbage && random() % 8 == 0 ? 0 : 1 + random() % shape.max_replicas;
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = static_cast<std::int32_t>(random() % shape.num_physical_experts);
      map[expert * shape.max_replicas + i] =
          with_garbage && random() % 16 == 0 ? place + static_cast<std::int32_t>(shape.num_physical_experts) : place;
    }
  }
  return map;
}

/// What the experts of one rank make of its rows: different for each, finite, and NaN on pads.
Bytes transform(const RanksShape& shape, const reference::RankRouting& routing, const Bytes& rows, int rank) {
  const DataType from = shape.payload.type == DataType::bytes ? DataType::bfloat16 : shape.payload.type;
  const DataType to = shape.combine.expert_output;
  const std::int64_t elements = row_bytes_of(shape) / static_cast<std::int64_t>(size_of(from));
  const std::vector<std::int32_t>& experts = routing.rows.expert_of_row;
  Bytes output(experts.size() * static_cast<std::size_t>(shape.hidden) * size_of(to));
  for (std::int64_t row = 0; row < std::ssize(experts); ++row) {
    for (std::int64_t column = 0; column < shape.hidden; ++column) {
      float value = std::numeric_limits<float>::quiet_NaN();
      if (experts[row] >= 0) {
        const float token = reference::load(rows.data(), from, row * elements + column % elements);
        const float bounded = std::isfinite(token) ? std::fmod(token, 256.0F) : 1.0F;
        value = bounded * (0.5F + 0.03125F * static_cast<float>(experts[row] % 31)) + static_cast<float>(rank % 5);
      }
      reference::store(output.data(), to, row * shape.hidden + column, value);
    }
  }
  return output;
}

Bytes encode_ids(const std::vector<std::int64_t>& ids, IndexType type) {
  Bytes bytes(ids.size() * size_of(type));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto narrow = static_cast<std::int32_t>(ids[i]);
    if (type == IndexType::int64) {
      std::memcpy(&bytes[i * 8], &ids[i], 8);
    } else {
      std::memcpy(&bytes[i * 4], &narrow, 4);
    }
  }
  return bytes;
}

std::size_t at_least_one(std::int64_t bytes) { return static_cast<std::size_t>(std::max<std::int64_t>(bytes, 16)); }

void copy_in(const Buffer& to, const void* from, std::size_t bytes, StreamView stream) {
  if (bytes != 0) copy_bytes(to.data(), from, bytes, stream);
}

}  // namespace

ExchangeConfig RanksShape::config() const {
  ExchangeConfig config{.tp_size = tp_size,
                        .fp32_partials = fp32_partials,
                        .num_physical_experts = num_physical_experts,
                        .max_replicas = max_replicas,
                        .num_experts = num_experts,
                        .top_k = top_k,
                        .hidden = hidden,
                        .max_tokens = max_tokens,
                        .max_alignment = layout == Layout::packed ? alignment : 1,
                        .payloads = {payload},
                        .combine_types = {combine},
                        .weights_on_input = weight_mode == WeightMode::on_input,
                        .transport = transport};
  config.mode = ranks_per_node == 0 ? Mode::nvlink : Mode::p2p;
  config.max_rows = layout == Layout::packed ? Capacity(capacity_of(*this)) : Capacity(0);
  config.max_rows_per_expert = layout == Layout::batched ? capacity_of(*this) : 0;
  return config;
}

RanksCall::RanksCall(const RanksShape& shape_in, Routes routes, unsigned seed, std::vector<std::int64_t> counts)
    : shape(shape_in),
      in{.num_ranks = shape.num_ranks,
         .tp_size = shape.tp_size,
         .num_experts = shape.num_experts,
         .top_k = shape.top_k,
         .max_tokens = shape.max_tokens,
         .num_physical_experts = shape.num_physical_experts,
         .max_replicas = shape.max_replicas,
         .layout = shape.layout,
         .alignment = shape.layout == Layout::packed ? shape.alignment : 1,
         .capacity = capacity_of(shape)} {
  std::mt19937 random(seed);
  if (shape.num_physical_experts != 0) in.expert_map = draw_map(shape, routes == Routes::garbage, random);
  std::uniform_real_distribution<float> uniform(0.01F, 1.0F);
  const std::int64_t row_bytes = row_bytes_of(shape);
  for (int source = 0; source < shape.num_sources(); ++source) {
    reference::SourceInput from{
        .num_tokens = counts.empty() ? static_cast<std::int64_t>(random() % (shape.max_tokens + 1)) : counts[source]};
    for (std::int64_t i = 0; i < from.num_tokens * shape.top_k; ++i) {
      from.ids.push_back(draw_id(shape, routes, random));
      if (shape.weight_mode != WeightMode::none) from.weights.push_back(uniform(random));
    }
    tokens.push_back(shape.payload.type == DataType::bytes
                         ? random_bytes(from.num_tokens * row_bytes, random)
                         : random_elements(shape.payload.type, from.num_tokens * shape.hidden, random));
    scales.push_back(random_bytes(from.num_tokens * shape.payload.scale_bytes, random));
    prior_output.push_back(random_elements(shape.combine.output, from.num_tokens * shape.hidden, random));
    in.sources.push_back(std::move(from));
  }

  routing = reference::route_ranks(in);
  std::vector<const unsigned char*> token_data;
  std::vector<const unsigned char*> scale_data;
  for (int source = 0; source < shape.num_sources(); ++source) {
    token_data.push_back(tokens[source].data());
    scale_data.push_back(scales[source].data());
  }
  reference::RanksCombineInput combine{.hidden = shape.hidden,
                                       .expert_output_type = shape.combine.expert_output,
                                       .output_type = shape.combine.output,
                                       .weighted = shape.weight_mode == WeightMode::on_combine,
                                       .fp32_partials = shape.fp32_partials,
                                       .accumulate = shape.accumulate};
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    rows.push_back(reference::dispatch_rows(routing[rank], shape.top_k, token_data, row_bytes));
    row_scales.push_back(reference::dispatch_rows(routing[rank], shape.top_k, scale_data, shape.payload.scale_bytes));
    if (shape.weight_mode == WeightMode::on_input) {
      reference::weight_rows(routing[rank].rows, rows.back().data(), shape.payload.type, shape.hidden);
    }
    expert_output.push_back(transform(shape, routing[rank], rows.back(), rank));
  }
  for (const Bytes& bytes : expert_output) combine.expert_output.push_back(bytes.data());
  for (int source = 0; source < shape.num_sources(); ++source) {
    output.push_back(prior_output[source]);
    reference::combine_data_parallel(in, routing, combine, source, output.back().data());
  }
}

std::int64_t RanksCall::dropped_by_peers(int rank) const {
  std::int64_t dropped = 0;
  for (int peer = 0; peer < shape.num_ranks; ++peer) {
    if (peer != rank) dropped += routing[peer].dropped[rank / shape.tp_size];
  }
  return dropped;
}

ExchangeRank::ExchangeRank(const Communicator& communicator, const RanksShape& shape, int host_threads)
    : ExchangeRank(communicator, shape, Exchange(communicator, shape.config()), host_threads) {}

ExchangeRank::ExchangeRank(const Communicator& communicator, const RanksShape& shape, Exchange exchange_in,
                           int host_threads)
    : exchange(std::move(exchange_in)),
      stream(communicator.device(), {.num_threads = host_threads}),
      shape_(shape),
      rank_(communicator.rank()),
      row_capacity_(most_rows(shape)),
      tokens_(communicator.device(), at_least_one(shape.max_tokens * row_bytes_of(shape))),
      scales_(communicator.device(), at_least_one(shape.max_tokens * shape.payload.scale_bytes)),
      ids_(communicator.device(), at_least_one(shape.max_tokens * shape.top_k * 8)),
      weights_(communicator.device(), at_least_one(shape.max_tokens * shape.top_k * 4)),
      count_(communicator.device(), 16),
      map_(communicator.device(), at_least_one(shape.num_experts * shape.max_replicas * 4)),
      expert_output_(communicator.device(), at_least_one(row_capacity_ * shape.hidden * 4)),
      output_(communicator.device(), at_least_one(shape.max_tokens * shape.hidden * 4)) {
  communicator.barrier();  // nobody allocates while another rank's kernel waits
}

// NOTE [copies between ranks of one GPU]. Streams of a process share the queues of a GPU's copy engines, which take
// copies in order. A copy behind a call that waits for another rank holds up that rank's copies, and so the call that
// it waits for. So a rank waits for its calls before it copies.

void ExchangeRank::load(const RanksCall& call) {
  stream.synchronize();
  const int source = rank_ / shape_.tp_size;
  const reference::SourceInput& from = call.in.sources[source];
  num_tokens_ = shape_.device_counts ? shape_.max_tokens : from.num_tokens;
  const Bytes ids = encode_ids(from.ids, shape_.index);
  const auto count = static_cast<std::int32_t>(from.num_tokens);
  copy_in(tokens_, call.tokens[source].data(), call.tokens[source].size(), stream);
  copy_in(scales_, call.scales[source].data(), call.scales[source].size(), stream);
  copy_in(ids_, ids.data(), ids.size(), stream);
  copy_in(weights_, from.weights.data(), from.weights.size() * 4, stream);
  copy_in(count_, &count, 4, stream);
  copy_in(map_, call.in.expert_map.data(), call.in.expert_map.size() * 4, stream);
  copy_in(expert_output_, call.expert_output[rank_].data(), call.expert_output[rank_].size(), stream);
  copy_in(output_, call.prior_output[source].data(), call.prior_output[source].size(), stream);
  stream.synchronize();
}

DispatchArgs ExchangeRank::dispatch_args() const {
  DispatchArgs args{.tokens = {.data = tokens_.data(),
                               .type = shape_.payload.type,
                               .rows = num_tokens_,
                               .columns = columns_of(shape_)},
                    .expert_ids = {.data = ids_.data(), .type = shape_.index},
                    .weights = weights_.as<float>(),
                    .layout = shape_.layout,
                    .alignment = shape_.alignment,
                    .weight_mode = shape_.weight_mode,
                    .zero_pads = shape_.zero_pads,
                    .max_sms = max_sms};
  if (shape_.payload.scale_bytes != 0) {
    args.scales = {
        .data = scales_.data(), .type = DataType::bytes, .rows = num_tokens_, .columns = shape_.payload.scale_bytes};
  }
  if (shape_.device_counts) args.num_tokens = count_.as<std::int32_t>();
  if (shape_.num_physical_experts != 0) args.expert_map = map_.as<std::int32_t>();
  return args;
}

CombineArgs ExchangeRank::combine_args() const {
  return {
      .expert_output = {.data = expert_output_.data(),
                        .type = shape_.combine.expert_output,
                        .rows = row_capacity_,
                        .columns = shape_.hidden},
      .output = {.data = output_.data(), .type = shape_.combine.output, .rows = num_tokens_, .columns = shape_.hidden},
      .accumulate = shape_.accumulate};
}

void ExchangeRank::enqueue(bool split, bool reuse_routing) {
  DispatchArgs args = dispatch_args();
  args.reuse_routing = reuse_routing;
  if (!split) {
    batch = exchange.dispatch(args, stream);
    exchange.combine(combine_args(), stream);
    return;
  }
  batch = exchange.dispatch_receive(exchange.dispatch_send(args, stream), stream);
  exchange.combine_receive(exchange.combine_send(combine_args(), stream), stream);
}

std::int64_t ExchangeRank::count_wrong(const RanksCall& call) {
  const Bytes& expected = call.output[rank_ / shape_.tp_size];
  stream.synchronize();  // NOTE [copies between ranks of one GPU]
  const Bytes found = download<unsigned char>(output_.data(), std::ssize(expected), stream);
  std::int64_t wrong = 0;
  if (found == expected) return 0;
  for (std::size_t i = 0; i < expected.size(); ++i) wrong += found[i] != expected[i] ? 1 : 0;
  return wrong;
}

void ExchangeRank::expect(const RanksCall& call, const std::string& where) {
  const std::string at = where + " rank " + std::to_string(rank_);
  stream.synchronize();  // NOTE [copies between ranks of one GPU]
  const std::string fault = fault_of(exchange);
  ASSERT_EQ(fault, "") << at;  // which wait expired says more than the values that are missing
  const reference::RankRouting& routing = call.routing[rank_];
  const std::int64_t experts = batch.num_local_experts;
  ASSERT_EQ(experts, call.in.first_expert(rank_ + 1) - call.in.first_expert(rank_)) << at;
  ASSERT_EQ(download<std::int64_t>(batch.offsets, experts + 1, stream), routing.rows.offsets) << at;
  ASSERT_EQ(download<std::int32_t>(batch.counts, experts, stream), routing.rows.counts) << at;
  const std::int64_t num_rows = routing.rows.offsets.back();
  ASSERT_EQ(download<std::int32_t>(batch.expert_of_row, num_rows, stream), routing.rows.expert_of_row) << at;
  const auto sources = download<std::int64_t>(batch.source_of_row, num_rows, stream);
  const auto weights = download<float>(batch.weight_of_row, num_rows, stream);
  const Bytes rows = download<unsigned char>(batch.rows.data, num_rows * batch.rows.stride_bytes(), stream);
  const Bytes scales = download<unsigned char>(batch.scales.data, num_rows * batch.scales.columns, stream);
  const std::int64_t row_bytes = row_bytes_of(shape_);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const bool pad = routing.rows.expert_of_row[row] < 0;
    if (pad && !shape_.zero_pads) continue;
    ASSERT_EQ(0, std::memcmp(&rows[row * row_bytes], &call.rows[rank_][row * row_bytes], row_bytes))
        << at << " row " << row;
    if (pad) continue;
    ASSERT_EQ(sources[row], routing.rows.source_of_row[row]) << at << " row " << row;
    ASSERT_EQ(weights[row], routing.rows.weight_of_row[row]) << at << " row " << row;
    const std::int64_t scale_bytes = shape_.payload.scale_bytes;
    if (scale_bytes == 0) continue;
    ASSERT_EQ(0, std::memcmp(&scales[row * scale_bytes], &call.row_scales[rank_][row * scale_bytes], scale_bytes))
        << at << " scales of row " << row;
  }
  const Bytes& expected = call.output[rank_ / shape_.tp_size];
  const Bytes output = download<unsigned char>(output_.data(), std::ssize(expected), stream);
  for (std::int64_t i = 0; i < std::ssize(expected) / static_cast<std::int64_t>(size_of(shape_.combine.output)); ++i) {
    ASSERT_TRUE(reference::same(output.data(), expected.data(), shape_.combine.output, i))
        << at << " token " << i / shape_.hidden << " column " << i % shape_.hidden << ": "
        << reference::load(output.data(), shape_.combine.output, i) << ", expected "
        << reference::load(expected.data(), shape_.combine.output, i);
  }
  std::int64_t dropped_here = 0;
  for (const std::int64_t dropped : routing.dropped) dropped_here += dropped;
  const DataErrors errors = exchange.data_errors();
  ASSERT_EQ(errors.ids_out_of_range, routing.ids_out_of_range) << at;
  ASSERT_EQ(errors.rows_over_capacity, dropped_here) << at;
  ASSERT_EQ(errors.entries_dropped_by_peers, call.dropped_by_peers(rank_)) << at;
  ASSERT_EQ(errors.token_counts_clamped, 0) << at;
  ASSERT_EQ(errors.peer_counts_clamped, 0) << at;
  if (!errors.any()) {
    exchange.check();
  } else {
    EXPECT_THROW(exchange.check(), Error) << at;
  }
}

std::vector<Communicator> ranks_on(Device device, const RanksShape& shape, std::chrono::milliseconds deadline) {
  return Communicator::in_process(
      shape.num_ranks, {.devices = device.is_host() ? std::vector<int>{} : std::vector<int>{device.ordinal()},
                        .deadline = deadline,
                        .ranks_per_node = shape.ranks_per_node});
}

std::vector<Communicator> ranks_on(Device device, int num_ranks, std::chrono::milliseconds deadline) {
  return ranks_on(device, RanksShape{.num_ranks = num_ranks}, deadline);
}

void check_calls(Device device, const RanksShape& shape, const std::vector<RanksCall>& calls, int host_threads,
                 bool split) {
  const auto communicators = ranks_on(device, shape);
  on_every_rank(communicators, [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape, host_threads);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      rank.run(calls[i], split, "call " + std::to_string(i));
      if (::testing::Test::HasFatalFailure()) break;  // the others end at their deadline
    }
    communicator.barrier();
  });
}

}  // namespace moelink::test
