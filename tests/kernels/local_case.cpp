#include "kernels/local_case.hpp"

#include <algorithm>

namespace moelink::test {
namespace {

DataType type_of(Element element) {
  return element == Element::float32   ? DataType::float32
         : element == Element::float16 ? DataType::float16
                                       : DataType::bfloat16;
}

void fill_random(unsigned char* bytes, std::int64_t size, std::mt19937_64& random) {
  for (std::int64_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random());
}

/// Random values of a type; not random bits, most of which would be huge.
void fill_values(unsigned char* bytes, std::int64_t count, Element element, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value =
        random() % 50 == 0 ? -0.0F : normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 9) - 4);
    reference::store(bytes, type_of(element), i, value);
  }
}

reference::Routing route(const LocalCase& c, const float* weights) {
  reference::RoutingInput in{.num_experts = c.num_experts,
                             .top_k = c.top_k,
                             .num_tokens = c.actual_tokens(),
                             .layout = c.layout,
                             .alignment = c.layout == Layout::packed ? c.alignment : 1,
                             .capacity = c.capacity()};
  in.ids.assign(c.ids.begin(), c.ids.begin() + c.actual_tokens() * c.top_k);
  if (c.weighted) in.weights.assign(weights, weights + c.actual_tokens() * c.top_k);
  return reference::route(in);
}

}  // namespace

LocalRun::LocalRun(const LocalCase& given, unsigned seed) : c(given) {
  std::mt19937_64 random(seed);
  const std::int64_t stride = c.row_bytes + c.row_gap_bytes;
  tokens_ = Guarded(c.num_tokens * stride, 0);
  scales_ = Guarded(c.num_tokens * c.scale_bytes, 0);
  weights_ = Guarded(c.entries() * 4, 0);
  ids_ = Guarded(c.entries() * c.id_bytes, 0);
  for (std::int64_t i = 0; i < c.entries(); ++i) {
    if (c.id_bytes == 8) {
      ids_.as<std::int64_t>()[i] = c.ids[i];
    } else {
      ids_.as<std::int32_t>()[i] = static_cast<std::int32_t>(c.ids[i]);
    }
  }
  fill_values(weights_.data(), c.entries(), Element::float32, random);
  new_tokens(seed + 1);

  rows_ = Guarded(c.total_rows() * stride, kUntouched);
  row_scales_ = Guarded(c.total_rows() * c.scale_bytes, kUntouched);
  offsets_ = Guarded((c.num_experts + 1) * 8, kUntouched);
  counts_ = Guarded(c.num_experts * 4, kUntouched);
  expert_of_row_ = Guarded(c.total_rows() * 4, kUntouched);
  weight_of_row_ = Guarded(c.total_rows() * 4, kUntouched);
  source_of_row_ = Guarded(c.total_rows() * 8, kUntouched);
  row_of_entry_ = Guarded(c.entries() * 4, 0xff);
  weight_of_entry_ = Guarded(c.entries() * 4, 0xff);
  block_counts_ = Guarded(prefill_workspace_words(c.num_experts, 8) * 4, kUntouched);
  device_count_ = static_cast<std::int32_t>(c.device_count);
  expected = route(c, weights_.as<float>());

  args = {.tokens = tokens_.data(),
          .token_stride_bytes = stride,
          .scales = c.scale_bytes != 0 ? scales_.data() : nullptr,
          .scale_stride_bytes = c.scale_bytes,
          .expert_ids = ids_.data(),
          .id_bytes = c.id_bytes,
          .weights = c.weighted ? weights_.as<float>() : nullptr,
          .device_num_tokens = c.device_count < 0 ? nullptr : &device_count_,
          .num_tokens = static_cast<i32>(c.num_tokens),
          .parts = 1,
          .ring_bytes = 0,
          .every_block_counts = 0,
          .layout = c.layout == Layout::packed ? RowLayout::packed : RowLayout::batched,
          .alignment = c.alignment,
          .zero_pads = c.zero_pads ? 1 : 0,
          .max_rows = c.capacity(),
          .rows = rows_.data(),
          .row_stride_bytes = stride,
          .row_scales = c.scale_bytes != 0 ? row_scales_.data() : nullptr,
          .offsets = offsets_.as<i64>(),
          .counts = counts_.as<i32>(),
          .expert_of_row = expert_of_row_.as<i32>(),
          .weight_of_row = weight_of_row_.as<float>(),
          .source_of_row = source_of_row_.as<i64>(),
          .row_of_entry = row_of_entry_.as<i32>(),
          .weight_of_entry = weight_of_entry_.as<float>(),
          .num_tokens_snapshot = &snapshot_,
          .grid_barrier = &barrier_,
          .block_counts = block_counts_.as<u32>(),
          .phase = &phase,
          .status = &status,
          .fault = {}};
}

void LocalRun::new_tokens(unsigned seed) {
  std::mt19937_64 random(seed);
  const std::int64_t stride = c.row_bytes + c.row_gap_bytes;
  for (std::int64_t t = 0; t < c.num_tokens; ++t) {
    if (c.on_input == Element::none) {
      fill_random(tokens_.data() + t * stride, c.row_bytes, random);
    } else {
      fill_values(tokens_.data() + t * stride, c.row_bytes / bytes_of(c.on_input), c.on_input, random);
    }
  }
  fill_random(scales_.data(), scales_.size(), random);
}

void LocalRun::dispatch(DispatchVariant variant, BlockTeam& team, int grid, int parts, bool every_block_counts) {
  const LocalDispatchSpec spec{.row_bytes = c.row_bytes,
                               .scale_bytes = c.scale_bytes,
                               .num_experts = static_cast<i32>(c.num_experts),
                               .top_k = c.top_k,
                               .threads = 1,
                               .weighted = c.on_input};
  args.parts = parts;
  args.every_block_counts = every_block_counts ? 1 : 0;
  const Runtime<LocalDispatchSpec> view(spec);
  if (variant == DispatchVariant::decode) {
    const int bytes = DecodeScratch(spec.num_experts).total;
    team.run(grid, bytes, [&](const HostExec& ex) { LocalDecode::run(ex, view, args); });
  } else {
    const int bytes = PrefillScratch(spec.num_experts, true, 0).total;
    team.run(grid, bytes, [&](const HostExec& ex) {
      if (variant == DispatchVariant::prefill) LocalPrefill::run(ex, view, args);
      if (variant == DispatchVariant::move) LocalMove::run(ex, view, args);
    });
  }
}

void LocalRun::expect_routing() {
  const std::int64_t num_experts = c.num_experts;
  EXPECT_TRUE(std::equal(expected.offsets.begin(), expected.offsets.end(), offsets_.as<std::int64_t>()));
  EXPECT_TRUE(std::equal(expected.counts.begin(), expected.counts.end(), counts_.as<std::int32_t>()));
  EXPECT_TRUE(std::equal(expected.row_of_entry.begin(), expected.row_of_entry.end(), row_of_entry_.as<std::int32_t>()));
  ASSERT_EQ(expected.offsets[num_experts], offsets_.as<std::int64_t>()[num_experts]);
  for (std::int64_t row = 0; row < expected.offsets[num_experts]; ++row) {
    ASSERT_EQ(expected.expert_of_row[row], expert_of_row_.as<std::int32_t>()[row]) << "row " << row;
    if (expected.expert_of_row[row] < 0) continue;
    ASSERT_EQ(expected.weight_of_row[row], weight_of_row_.as<float>()[row]) << "row " << row;
    ASSERT_EQ(expected.source_of_row[row], source_of_row_.as<std::int64_t>()[row]) << "row " << row;
  }
  for (std::int64_t i = 0; i < c.actual_tokens() * c.top_k; ++i) {
    ASSERT_EQ(c.weighted ? weights_.as<float>()[i] : 1.0F, weight_of_entry_.as<float>()[i]) << "entry " << i;
  }
  EXPECT_EQ(c.actual_tokens(), snapshot_);
  EXPECT_EQ(static_cast<std::uint64_t>(expected.ids_out_of_range), status.ids_out_of_range);
  EXPECT_EQ(static_cast<std::uint64_t>(expected.rows_over_capacity), status.rows_over_capacity);
  EXPECT_EQ(c.device_count > c.num_tokens ? 1U : 0U, status.token_counts_clamped);
  for (Guarded* buffer : {&rows_, &row_scales_, &offsets_, &counts_, &expert_of_row_, &weight_of_row_, &source_of_row_,
                          &row_of_entry_, &weight_of_entry_, &block_counts_}) {
    EXPECT_TRUE(buffer->intact()) << "something was written outside a buffer of " << buffer->size() << " bytes";
  }
}

std::vector<unsigned char> LocalRun::dense_tokens() {
  const std::int64_t stride = c.row_bytes + c.row_gap_bytes;
  std::vector<unsigned char> dense(c.num_tokens * c.row_bytes);
  for (std::int64_t t = 0; t < c.num_tokens; ++t) {
    std::memcpy(dense.data() + t * c.row_bytes, tokens_.data() + t * stride, c.row_bytes);
  }
  return dense;
}

void LocalRun::expect_rows() {
  const std::int64_t stride = c.row_bytes + c.row_gap_bytes;
  const std::vector<unsigned char> dense = dense_tokens();
  std::vector<unsigned char> rows = reference::dispatch_rows(expected, c.top_k, dense.data(), c.row_bytes);
  if (c.on_input != Element::none) {
    reference::weight_rows(expected, rows.data(), type_of(c.on_input), c.row_bytes / bytes_of(c.on_input));
  }
  const std::vector<unsigned char> scales = reference::dispatch_rows(expected, c.top_k, scales_.data(), c.scale_bytes);
  for (std::int64_t row = 0; row < expected.offsets.back(); ++row) {
    const unsigned char* got = rows_.data() + row * stride;
    const unsigned char* got_scales = row_scales_.data() + row * c.scale_bytes;
    const bool pad = expected.expert_of_row[row] < 0;
    if (pad && !c.zero_pads) {
      ASSERT_TRUE(std::all_of(got, got + stride, [](unsigned char b) { return b == kUntouched; })) << "pad " << row;
      continue;
    }
    ASSERT_EQ(0, std::memcmp(got, rows.data() + row * c.row_bytes, c.row_bytes)) << "row " << row;
    if (c.scale_bytes != 0) {
      ASSERT_EQ(0, std::memcmp(got_scales, scales.data() + row * c.scale_bytes, c.scale_bytes)) << "row " << row;
    }
    ASSERT_TRUE(std::all_of(got + c.row_bytes, got + stride, [](unsigned char b) { return b == kUntouched; }))
        << "behind row " << row;
  }
}

void LocalRun::combine(BlockTeam& team, int grid, int parts, Element input, Element output_type, bool accumulate,
                       bool weighted) {
  std::mt19937_64 random(7);
  hidden = c.row_bytes / 2;
  const LocalCombineSpec spec{.hidden = hidden, .top_k = c.top_k, .threads = 1, .input = input, .output = output_type};
  // Pads hold NaN: whoever reads one shows it.
  const std::int64_t row_bytes = hidden * bytes_of(input);
  expert_output_.assign(c.total_rows() * row_bytes, 0xff);
  for (const std::int32_t row : expected.row_of_entry) {
    if (row >= 0) fill_values(expert_output_.data() + row * row_bytes, hidden, input, random);
  }
  const std::int64_t output_bytes = hidden * bytes_of(output_type);
  output = Guarded(c.num_tokens * output_bytes, kUntouched);
  fill_values(output.data(), c.num_tokens * hidden, output_type, random);
  output_before.assign(output.data(), output.data() + output.size());
  const LocalCombineArgs combine_args{.expert_output = expert_output_.data(),
                                      .expert_output_stride_bytes = row_bytes,
                                      .expert_output_rows = c.total_rows(),
                                      .output = output.data(),
                                      .output_stride_bytes = output_bytes,
                                      .accumulate = accumulate ? 1 : 0,
                                      .weighted = weighted ? 1 : 0,
                                      .num_tokens = static_cast<i32>(c.num_tokens),
                                      .parts = parts,
                                      .num_tokens_snapshot = &snapshot_,
                                      .row_of_entry = row_of_entry_.as<i32>(),
                                      .weight_of_entry = weight_of_entry_.as<float>(),
                                      .phase = &phase,
                                      .status = &status};
  team.run(grid, 0, [&](const HostExec& ex) { LocalCombine::run(ex, Runtime<LocalCombineSpec>(spec), combine_args); });
}

void LocalRun::expect_output(Element input, Element output_type, bool accumulate, bool weighted) {
  std::vector<unsigned char> wanted = output_before;
  reference::CombineInput in{.top_k = c.top_k,
                             .num_tokens = c.actual_tokens(),
                             .hidden = hidden,
                             .expert_output = expert_output_.data(),
                             .expert_output_type = type_of(input),
                             .output_type = type_of(output_type),
                             .accumulate = accumulate};
  if (weighted) in.weights.assign(weight_of_entry_.as<float>(), weight_of_entry_.as<float>() + c.entries());
  reference::combine(in, expected, wanted.data());
  for (std::int64_t i = 0; i < c.num_tokens * hidden; ++i) {
    ASSERT_TRUE(reference::same(wanted.data(), output.data(), type_of(output_type), i))
        << "token " << i / hidden << " column " << i % hidden << ": "
        << reference::load(wanted.data(), type_of(output_type), i) << " expected, "
        << reference::load(output.data(), type_of(output_type), i) << " found";
  }
  EXPECT_TRUE(output.intact());
}

}  // namespace moelink::test
