// Ranks of one process that dispatch and combine tensor-parallel, and what every one of them should get.
#pragma once

#include <cmath>
#include <functional>
#include <string>

#include "exchange/problem.hpp"
#include "moelink/communicator.hpp"
#include "moelink/error.hpp"
#include "reference/ranks_moe.hpp"
#include "support/device.hpp"

namespace moelink::test {

/// What the reference makes of a problem on every rank.
struct TpExpected {
  reference::RanksInput in;
  std::vector<reference::RankRouting> routing;
  std::vector<Bytes> rows;
  std::vector<Bytes> expert_output;
  std::vector<Bytes> shared;  ///< empty unless the shape has a shared term
  Bytes output;

  TpExpected(const Problem& problem, const ExchangeConfig& config, int num_ranks)
      : in(input_of(problem, config, num_ranks)), routing(reference::route_ranks(in)), output(problem.prior_output) {
    const Shape& shape = problem.shape;
    reference::RanksCombineInput combine{.hidden = shape.hidden,
                                         .expert_output_type = shape.combine.expert_output,
                                         .output_type = shape.combine.output,
                                         .weighted = shape.weight_mode == WeightMode::on_combine,
                                         .fp32_partials = config.fp32_partials,
                                         .accumulate = shape.accumulate};
    for (int r = 0; r < num_ranks; ++r) {
      rows.push_back(reference::dispatch_rows(routing[r], shape.top_k, {problem.tokens.data()}, problem.row_bytes()));
      expert_output.push_back(experts(shape, r));
      if (shape.shared) shared.push_back(shared_of(problem, r));
    }
    for (int r = 0; r < num_ranks; ++r) {
      combine.expert_output.push_back(expert_output[r].data());
      if (shape.shared) combine.shared.push_back(shared[r].data());
    }
    reference::combine_tensor_parallel(in, routing, combine, output.data());
  }

 private:
  static reference::RanksInput input_of(const Problem& problem, const ExchangeConfig& config, int num_ranks) {
    const Shape& shape = problem.shape;
    const std::int64_t live = problem.num_live_tokens();
    reference::RanksInput in{
        .num_ranks = num_ranks,
        .tp_size = num_ranks,
        .num_experts = shape.num_experts,
        .top_k = shape.top_k,
        .max_tokens = config.max_tokens,
        .layout = shape.layout,
        .alignment = shape.alignment,
        .capacity = shape.layout == Layout::packed ? config.max_rows.rows() : config.max_rows_per_expert};
    const auto entries = static_cast<std::size_t>(live * shape.top_k);
    reference::SourceInput source{.num_tokens = live};
    source.ids.assign(problem.ids.begin(), problem.ids.begin() + entries);
    source.weights.assign(problem.weights.begin(), problem.weights.begin() + entries);
    if (shape.weight_mode == WeightMode::none) source.weights.clear();
    in.sources.push_back(source);
    return in;
  }

  /// An expert-specific transform of a rank's rows; pads are NaN.
  [[nodiscard]] Bytes experts(const Shape& shape, int rank) const {
    const reference::Routing& local = routing[rank].rows;
    const DataType type = shape.combine.expert_output;
    Bytes out(local.expert_of_row.size() * static_cast<std::size_t>(shape.hidden) * size_of(type));
    for (std::size_t row = 0; row < local.expert_of_row.size(); ++row) {
      for (std::int64_t column = 0; column < shape.hidden; ++column) {
        const std::int64_t i = static_cast<std::int64_t>(row) * shape.hidden + column;
        const std::int64_t expert = local.expert_of_row[row] + in.first_expert(rank);
        const float scale = 0.5F + 0.03125F * static_cast<float>(expert % 97);
        const float value =
            local.expert_of_row[row] < 0
                ? std::nanf("")
                : reference::load(rows[rank].data(), shape.payload.type, i) * scale + static_cast<float>(column % 3);
        reference::store(out.data(), type, i, value);
      }
    }
    return out;
  }

  static Bytes shared_of(const Problem& problem, int rank) {
    Bytes shared = problem.shared;
    const DataType type = problem.shape.combine.expert_output;
    for (std::int64_t i = 0; i < problem.shape.num_tokens * problem.shape.hidden; ++i) {
      reference::store(shared.data(), type, i, reference::load(shared.data(), type, i) * static_cast<float>(rank + 1));
    }
    return shared;
  }
};

/// One rank's object, stream and memory.
struct TpRank {
  Exchange exchange;
  Stream stream;
  Buffer tokens, ids, weights, num_tokens, expert_output, shared, output;
};

class TpGroup {
 public:
  /// `config`: mode and maxima; every problem that runs fits it.
  TpGroup(int num_ranks, Device device, ExchangeConfig config, int host_threads = 1)
      : config_(std::move(config)), communicators_(Communicator::in_process(num_ranks, in_process_on(device))) {
    config_.mode = Mode::tensor_parallel;
    const auto rows =
        static_cast<std::size_t>(std::max(config_.max_rows.rows(), config_.max_rows_per_expert * config_.num_experts));
    const auto row_bytes = static_cast<std::size_t>(config_.hidden) * 4;
    const auto tokens = static_cast<std::size_t>(config_.max_tokens);
    const std::size_t entries = tokens * static_cast<std::size_t>(config_.top_k);
    ranks_ = on_every_rank(communicators_, [&](const Communicator& communicator) {
      const auto buffer = [&](std::size_t bytes) { return Buffer(device, std::max<std::size_t>(bytes, 16)); };
      return TpRank{Exchange(communicator, config_),
                    Stream(device, {.num_threads = host_threads}),
                    buffer(tokens * row_bytes),
                    buffer(entries * 8),
                    buffer(entries * 4),
                    buffer(4),
                    buffer(rows * row_bytes),
                    buffer(tokens * row_bytes),
                    buffer(tokens * row_bytes)};
    });
  }

  static InProcessOptions in_process_on(Device device, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
    return {.devices = device.is_host() ? std::vector<int>{} : std::vector<int>{device.ordinal()},
            .deadline = deadline};
  }

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] TpRank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const ExchangeConfig& config() const { return config_; }

  void load(int r, const Problem& problem, const TpExpected& expected) {
    TpRank& mine = rank(r);
    // Rows that nobody should read are NaN.
    fill_bytes(mine.expert_output.data(), 0xff, mine.expert_output.size_bytes(), mine.stream);
    const auto put = [&](const Buffer& to, const void* data, std::size_t bytes) {
      copy_bytes(to.data(), data, bytes, mine.stream);
    };
    const std::vector<std::int32_t> narrow(problem.ids.begin(), problem.ids.end());
    const bool wide = problem.shape.index == IndexType::int64;
    const auto count = static_cast<std::int32_t>(problem.shape.device_num_tokens);
    put(mine.tokens, problem.tokens.data(), problem.tokens.size());
    put(mine.ids, wide ? static_cast<const void*>(problem.ids.data()) : narrow.data(),
        problem.ids.size() * (wide ? 8 : 4));
    put(mine.weights, problem.weights.data(), problem.weights.size() * 4);
    put(mine.num_tokens, &count, 4);
    put(mine.output, problem.prior_output.data(), problem.prior_output.size());
    put(mine.expert_output, expected.expert_output[r].data(), expected.expert_output[r].size());
    if (problem.shape.shared) put(mine.shared, expected.shared[r].data(), expected.shared[r].size());
    mine.stream.synchronize();
  }

  [[nodiscard]] DispatchArgs dispatch_args(int r, const Problem& problem) {
    const Shape& shape = problem.shape;
    TpRank& mine = rank(r);
    DispatchArgs args{.tokens = {mine.tokens.data(), shape.payload.type, shape.num_tokens, shape.hidden},
                      .expert_ids = {mine.ids.data(), shape.index},
                      .weights = mine.weights.as<float>(),
                      .layout = shape.layout,
                      .alignment = shape.alignment,
                      .weight_mode = shape.weight_mode,
                      .zero_pads = shape.zero_pads};
    if (shape.device_num_tokens != Shape::kNoCount) args.num_tokens = mine.num_tokens.as<std::int32_t>();
    return args;
  }

  [[nodiscard]] CombineArgs combine_args(int r, const Problem& problem, const ExpertBatch& batch) {
    const Shape& shape = problem.shape;
    TpRank& mine = rank(r);
    CombineArgs args{
        .expert_output = {mine.expert_output.data(), shape.combine.expert_output, batch.rows.rows, shape.hidden},
        .output = {mine.output.data(), shape.combine.output, shape.num_tokens, shape.hidden},
        .accumulate = shape.accumulate};
    if (shape.shared) {
      args.shared = {mine.shared.data(), shape.combine.expert_output, shape.num_tokens, shape.hidden};
    }
    return args;
  }

  /// Everything on every rank, compared with the reference.
  void run_and_check(const Problem& problem) {
    const TpExpected expected(problem, config_, size());
    for (int r = 0; r < size(); ++r) load(r, problem, expected);
    std::vector<ExpertBatch> batches;
    for (int r = 0; r < size(); ++r) {
      batches.push_back(rank(r).exchange.dispatch(dispatch_args(r, problem), rank(r).stream));
    }
    for (int r = 0; r < size(); ++r) {
      rank(r).exchange.combine(combine_args(r, problem, batches[static_cast<std::size_t>(r)]), rank(r).stream);
    }
    for (int r = 0; r < size(); ++r) {
      SCOPED_TRACE(rank(r).exchange.describe_plan(problem.shape.num_tokens) + ", rank " + std::to_string(r) + " of " +
                   std::to_string(size()));
      expect_batch(r, batches[static_cast<std::size_t>(r)], problem, expected);
      expect_output(r, problem, expected);
      const std::int64_t dropped = expected.routing[r].dropped[0];
      std::int64_t dropped_by_all = 0;
      for (const reference::RankRouting& other : expected.routing) dropped_by_all += other.dropped[0];
      const DataErrors errors = rank(r).exchange.data_errors();
      EXPECT_EQ(errors.ids_out_of_range, expected.routing[r].ids_out_of_range);
      EXPECT_EQ(errors.rows_over_capacity, dropped);
      EXPECT_EQ(errors.entries_dropped_by_peers, dropped_by_all - dropped);
      if (errors.any()) {
        EXPECT_THROW(rank(r).exchange.check(), Error);
      }
      EXPECT_NO_THROW(rank(r).exchange.check());
    }
  }

  void expect_output(int r, const Problem& problem, const TpExpected& expected) {
    const Bytes got = download<unsigned char>(rank(r).output.data(), std::ssize(expected.output), rank(r).stream);
    const DataType type = problem.shape.combine.output;
    for (std::int64_t i = 0; i < problem.shape.num_tokens * problem.shape.hidden; ++i) {
      if (reference::same(got.data(), expected.output.data(), type, i)) continue;
      ADD_FAILURE() << "output of token " << i / problem.shape.hidden << " column " << i % problem.shape.hidden
                    << " is " << reference::load(got.data(), type, i) << ", expected "
                    << reference::load(expected.output.data(), type, i);
      return;
    }
  }

 private:
  void expect_batch(int r, const ExpertBatch& batch, const Problem& problem, const TpExpected& expected) {
    TpRank& mine = rank(r);
    const reference::Routing& local = expected.routing[r].rows;
    ASSERT_EQ(batch.num_local_experts, expected.in.first_expert(r + 1) - expected.in.first_expert(r));
    EXPECT_EQ(mine.exchange.first_expert(), expected.in.first_expert(r));
    EXPECT_EQ(download<std::int64_t>(batch.offsets, batch.num_local_experts + 1, mine.stream), local.offsets);
    EXPECT_EQ(download<std::int32_t>(batch.counts, batch.num_local_experts, mine.stream), local.counts);
    const std::int64_t num_rows = local.offsets.back();
    ASSERT_EQ(download<std::int32_t>(batch.expert_of_row, num_rows, mine.stream), local.expert_of_row);
    const auto sources = download<std::int64_t>(batch.source_of_row, num_rows, mine.stream);
    const auto rows = download<unsigned char>(batch.rows.data, num_rows * problem.row_bytes(), mine.stream);
    for (std::int64_t row = 0; row < num_rows; ++row) {
      if (local.expert_of_row[row] < 0) continue;
      ASSERT_EQ(sources[row], local.source_of_row[row]) << "row " << row;
      const auto first = row * problem.row_bytes();
      ASSERT_TRUE(std::equal(rows.begin() + first, rows.begin() + first + problem.row_bytes(),
                             expected.rows[r].begin() + first))
          << "row " << row;
    }
  }

  ExchangeConfig config_;
  std::vector<Communicator> communicators_;
  std::vector<TpRank> ranks_;
};

/// A configuration for this shape and all smaller ones.
inline ExchangeConfig tp_config(const Shape& largest, TensorParallelSum sum = TensorParallelSum::automatic) {
  ExchangeConfig config = config_for(largest);
  config.own_expert_output = false;
  config.tensor_parallel_sum = sum;
  return config;
}

}  // namespace moelink::test
