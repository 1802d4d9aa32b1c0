#include "exchange/runner.hpp"

#include <algorithm>
#include <cstring>

namespace moelink::test {
namespace {

constexpr unsigned char kCanary = 0xa5;

/// Ids in the type under test.
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

/// Rows that any batch of the shape may have.
std::int64_t row_capacity(const Shape& shape) {
  const ExchangeConfig config = config_for(shape);
  return std::max(config.max_rows.rows(), config.max_rows_per_expert * config.num_experts);
}

std::int64_t columns_of(const Shape& shape) {
  return shape.payload.type == DataType::bytes ? shape.payload.row_bytes : shape.hidden;
}

/// Names the first row that differs.
void expect_same_rows(const char* what, const Bytes& found, const Bytes& expected, DataType type,
                      std::int64_t row_bytes, const std::vector<std::int32_t>* expert_of_row, bool with_pads) {
  if (row_bytes == 0) return;
  ASSERT_GE(found.size(), expected.size()) << what;
  const auto element_bytes = static_cast<std::int64_t>(size_of(type));
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(expected.size()) / row_bytes; ++row) {
    if (expert_of_row != nullptr && (*expert_of_row)[static_cast<std::size_t>(row)] < 0 && !with_pads) continue;
    if (std::memcmp(&found[row * row_bytes], &expected[row * row_bytes], row_bytes) == 0) continue;
    for (std::int64_t i = row * row_bytes / element_bytes; i < (row + 1) * row_bytes / element_bytes; ++i) {
      const bool same =
          type == DataType::bytes ? found[i] == expected[i] : reference::same(found.data(), expected.data(), type, i);
      if (same) continue;
      ADD_FAILURE() << what << " row " << row << " column " << i - row * row_bytes / element_bytes << ": "
                    << (type == DataType::bytes ? static_cast<float>(found[i]) : reference::load(found.data(), type, i))
                    << ", expected "
                    << (type == DataType::bytes ? static_cast<float>(expected[i])
                                                : reference::load(expected.data(), type, i));
      return;
    }
  }
}

}  // namespace

DeviceMatrix::DeviceMatrix(const Bytes& dense, DataType type, std::int64_t rows, std::int64_t columns,
                           std::int64_t extra_stride_bytes, StreamView stream)
    : view_{.type = type, .rows = rows, .columns = columns},
      buffer_(stream.device(),
              static_cast<std::size_t>(std::max<std::int64_t>(rows * (view_.row_bytes() + extra_stride_bytes), 1))) {
  view_.data = buffer_.data();
  view_.row_stride_bytes = view_.row_bytes() + extra_stride_bytes;
  fill_bytes(buffer_.data(), kCanary, buffer_.size_bytes(), stream);
  if (!dense.empty()) upload(dense, stream);
}

void DeviceMatrix::upload(const Bytes& dense, StreamView stream) const {
  Bytes strided(static_cast<std::size_t>(view_.rows * view_.stride_bytes()), kCanary);
  for (std::int64_t row = 0; row < view_.rows && row * view_.row_bytes() < std::ssize(dense); ++row) {
    std::memcpy(&strided[row * view_.stride_bytes()], &dense[row * view_.row_bytes()], view_.row_bytes());
  }
  copy_bytes(buffer_.data(), strided.data(), strided.size(), stream);
  stream.synchronize();
}

Bytes DeviceMatrix::download(StreamView stream) const {
  const Bytes strided = test::download<unsigned char>(buffer_.data(), view_.rows * view_.stride_bytes(), stream);
  Bytes dense;
  for (std::int64_t row = 0; row < view_.rows; ++row) {
    const auto first = strided.begin() + row * view_.stride_bytes();
    const auto end = first + view_.row_bytes();
    dense.insert(dense.end(), first, end);
    EXPECT_TRUE(std::all_of(end, first + view_.stride_bytes(), [](auto byte) { return byte == kCanary; }))
        << "the gap after row " << row << " was written";
  }
  return dense;
}

bool operator==(const Outcome& a, const Outcome& b) {
  return a.offsets == b.offsets && a.counts == b.counts && a.expert_of_row == b.expert_of_row && a.output == b.output;
}

Runner::Runner(const Problem& problem, StreamView stream) : Runner(problem, config_for(problem.shape), stream) {}

Runner::Runner(const Problem& problem, const ExchangeConfig& config, StreamView stream)
    : Runner(problem, Exchange(Communicator::single(stream.device()), config), stream) {}

Runner::Runner(const Problem& problem, Exchange exchange, StreamView stream)
    : problem_(problem),
      stream_(stream),
      exchange_(std::move(exchange)),
      tokens_(problem.tokens, problem.shape.payload.type, problem.shape.num_tokens, columns_of(problem.shape),
              problem.shape.extra_stride_bytes, stream),
      scales_(problem.scales, DataType::bytes, problem.shape.num_tokens, problem.shape.payload.scale_bytes,
              problem.shape.extra_stride_bytes, stream),
      rows_({}, problem.shape.payload.type, row_capacity(problem.shape), columns_of(problem.shape),
            problem.shape.extra_stride_bytes, stream),
      expert_output_({}, problem.shape.combine.expert_output, row_capacity(problem.shape), problem.shape.hidden,
                     problem.shape.extra_stride_bytes, stream),
      shared_(problem.shared, problem.shape.combine.expert_output, problem.shape.num_tokens, problem.shape.hidden,
              problem.shape.extra_stride_bytes, stream),
      output_(problem.prior_output, problem.shape.combine.output, problem.shape.num_tokens, problem.shape.hidden,
              problem.shape.extra_stride_bytes, stream),
      ids_(test::upload(encode_ids(problem.ids, problem.shape.index), stream)),
      weights_(test::upload(problem.weights, stream)),
      num_tokens_(test::upload(std::vector<std::int32_t>{static_cast<std::int32_t>(problem.shape.device_num_tokens)},
                               stream)) {}

void Runner::load(const Problem& problem) {
  problem_ = problem;
  tokens_.upload(problem.tokens, stream_);
  scales_.upload(problem.scales, stream_);
  shared_.upload(problem.shared, stream_);
  output_.upload(problem.prior_output, stream_);
  const Bytes ids = encode_ids(problem.ids, problem.shape.index);
  copy_bytes(ids_.data(), ids.data(), ids.size(), stream_);
  copy_bytes(weights_.data(), problem.weights.data(), problem.weights.size() * sizeof(float), stream_);
  const auto count = static_cast<std::int32_t>(problem.shape.device_num_tokens);
  copy_bytes(num_tokens_.data(), &count, sizeof(count), stream_);
  stream_.synchronize();
}

DispatchArgs Runner::dispatch_args() const {
  const Shape& shape = problem_.shape;
  DispatchArgs args{.tokens = tokens_.view(),
                    .expert_ids = {.data = ids_.data(), .type = shape.index},
                    .weights = weights_.as<float>(),
                    .layout = shape.layout,
                    .alignment = shape.alignment,
                    .weight_mode = shape.weight_mode,
                    .zero_pads = shape.zero_pads};
  if (shape.payload.scale_bytes != 0) args.scales = scales_.view();
  if (shape.device_num_tokens != Shape::kNoCount) args.num_tokens = num_tokens_.as<std::int32_t>();
  if (shape.caller_rows) args.rows = rows_.view();
  return args;
}

CombineArgs Runner::combine_args(const ExpertBatch&) const {
  CombineArgs args{
      .expert_output = expert_output_.view(), .output = output_.view(), .accumulate = problem_.shape.accumulate};
  if (problem_.shape.shared) args.shared = shared_.view();
  return args;
}

void Runner::load_expert_output(const Expected& expected) { expert_output_.upload(expected.expert_output, stream_); }

Outcome Runner::run(const Expected& expected, bool reuse_routing) {
  DispatchArgs args = dispatch_args();
  args.reuse_routing = reuse_routing;
  const ExpertBatch batch = exchange_.dispatch(args, stream_);
  load_expert_output(expected);
  exchange_.combine(combine_args(batch), stream_);
  return read(batch);
}

Outcome Runner::read(const ExpertBatch& batch) const {
  Outcome outcome;
  outcome.offsets = test::download<std::int64_t>(batch.offsets, batch.num_local_experts + 1, stream_);
  outcome.counts = test::download<std::int32_t>(batch.counts, batch.num_local_experts, stream_);
  const std::int64_t rows = std::clamp<std::int64_t>(outcome.offsets.back(), 0, batch.rows.rows);
  outcome.expert_of_row = test::download<std::int32_t>(batch.expert_of_row, rows, stream_);
  outcome.weight_of_row = test::download<float>(batch.weight_of_row, rows, stream_);
  outcome.source_of_row = test::download<std::int64_t>(batch.source_of_row, rows, stream_);
  if (problem_.shape.caller_rows) {
    outcome.rows = rows_.download(stream_);
  } else {
    outcome.rows = test::download<unsigned char>(batch.rows.data, rows * batch.rows.stride_bytes(), stream_);
  }
  outcome.scales = test::download<unsigned char>(batch.scales.data, rows * batch.scales.columns, stream_);
  outcome.output = output_.download(stream_);
  outcome.errors = exchange_.data_errors();
  return outcome;
}

void expect_same(const Outcome& outcome, const Problem& problem, const Expected& expected) {
  const Shape& shape = problem.shape;
  const reference::Routing& routing = expected.routing;
  EXPECT_EQ(outcome.offsets, routing.offsets);
  EXPECT_EQ(outcome.counts, routing.counts);
  ASSERT_EQ(outcome.expert_of_row, routing.expert_of_row);
  for (std::size_t row = 0; row < routing.expert_of_row.size(); ++row) {
    if (routing.expert_of_row[row] < 0) continue;
    ASSERT_EQ(outcome.source_of_row[row], routing.source_of_row[row]) << "row " << row;
    ASSERT_EQ(outcome.weight_of_row[row], routing.weight_of_row[row]) << "row " << row;
  }
  expect_same_rows("rows", outcome.rows, expected.rows, shape.payload.type, problem.row_bytes(), &routing.expert_of_row,
                   shape.zero_pads);
  expect_same_rows("scales", outcome.scales, expected.scales, DataType::bytes, shape.payload.scale_bytes,
                   &routing.expert_of_row, false);
  expect_same_rows("output", outcome.output, expected.output, shape.combine.output,
                   shape.hidden * static_cast<std::int64_t>(size_of(shape.combine.output)), nullptr, true);
  const bool clamped =
      shape.device_num_tokens != Shape::kNoCount && shape.device_num_tokens != problem.num_live_tokens();
  EXPECT_EQ(outcome.errors.ids_out_of_range, routing.ids_out_of_range);
  EXPECT_EQ(outcome.errors.rows_over_capacity, routing.rows_over_capacity);
  EXPECT_EQ(outcome.errors.token_counts_clamped, clamped ? 1 : 0);
}

void check_problem(const Problem& problem, StreamView stream) {
  const Expected expected(problem);
  Runner runner(problem, stream);
  expect_same(runner.run(expected), problem, expected);
}

}  // namespace moelink::test
