#include "perf/quantize/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "perf/common/host_piece.hpp"
#include "perf/common/random.hpp"
#include "perf/common/timing.hpp"
#include "perf/reference/element.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kSetsBytes = std::int64_t{256} << 20;  // several times any L2: no call finds its rows there
constexpr float kTensorScale = 0.001F;

Buffer buffer_of(Device device, std::int64_t size_bytes) {
  return {device, static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 256))};
}

}  // namespace

/// What one call needs, and memory that no other call of a sample touches.
struct QuantizeBench::Set {
  RandomMatrix rows;
  std::int64_t columns;
  Buffer input, elements, scales, tensor_scale;
  QuantizeArgs args;
};

QuantizeBench::QuantizeBench(Device device, int num_threads, const MeasureFlags& measure)
    : measure_(measure), team_(num_threads), stream_(device, {.num_threads = num_threads}), limit_(stream_, team_) {}

QuantizeResult QuantizeBench::run(Quantization format, std::int64_t num_rows, std::int64_t columns,
                                  std::uint64_t seed) {
  const Device device = stream_.device();
  const BlockFormat reference{.name = format, .tensor_scale = format == Quantization::nvfp4 ? kTensorScale : 1.0F};
  const Quantizer quantizer(device, {.format = format, .columns = columns});
  const std::int64_t row_bytes = reference.row_bytes(columns);
  const std::int64_t scale_bytes = reference.scale_bytes(columns);

  QuantizeResult result{.moved_bytes = num_rows * (2 * columns + row_bytes + scale_bytes)};
  const std::int64_t sets_that_fill = kSetsBytes / std::max<std::int64_t>(result.moved_bytes, 1);
  result.num_sets = measure_.num_sets != 0
                        ? measure_.num_sets
                        : static_cast<int>(std::clamp<std::int64_t>(sets_that_fill, device.is_host() ? 1 : 4, 32));
  std::vector<Set> sets;
  for (int i = 0; i < result.num_sets; ++i) {
    Set& set = sets.emplace_back(Set{
        .rows = {DataType::bfloat16, num_rows, 2 * columns, derived_seed(seed, static_cast<std::uint64_t>(i)), true},
        .columns = columns,
        .input = buffer_of(device, num_rows * 2 * columns),
        .elements = buffer_of(device, num_rows * row_bytes),
        .scales = buffer_of(device, num_rows * scale_bytes),
        .tensor_scale = buffer_of(device, sizeof(float)),
        .args = {}});
    upload(set.rows, set.input.data(), stream_, team_);
    copy_bytes(set.tensor_scale.data(), &reference.tensor_scale, sizeof(float), stream_);
    for (Buffer* buffer : {&set.elements, &set.scales}) fill_bytes(buffer->data(), 0xFF, buffer->size_bytes(), stream_);
    stream_.synchronize();
    set.args = {.input = {set.input.data(), DataType::bfloat16, num_rows, columns},
                .output = {set.elements.data(), DataType::bytes, num_rows, row_bytes},
                .scales = {.data = set.scales.data()},
                .tensor_scale = set.tensor_scale.as<float>()};
  }

  const std::vector<CopyWork> copies = limit_.prepare({result.moved_bytes}, result.num_sets);
  const auto quantize = [&] {
    for (const Set& set : sets) quantizer.quantize(set.args, stream_);
  };
  TimedTurns turns(stream_, {{.enqueue = quantize, .num_calls = result.num_sets}, copies.front().work},
                   measure_.timing());
  const std::vector<WorkTimes> times = turns.time();
  result.us = percentiles(times[0].us);
  result.copy_us = percentiles(times[1].us).p50 * copies.front().scale;
  if (measure_.check == 0) return result;
  Mismatches mismatches;
  for (const Set& set : sets) check(set, reference, mismatches);
  result.wrong = mismatches.count();
  result.first_wrong = mismatches.first();
  return result;
}

void QuantizeBench::check(const Set& set, const BlockFormat& format, Mismatches& mismatches) {
  const std::int64_t row_bytes = format.row_bytes(set.columns);
  const std::int64_t scale_bytes = format.scale_bytes(set.columns);
  HostPiece elements(set.elements.data(), set.rows.rows * row_bytes, stream_);
  HostPiece scales(set.scales.data(), set.rows.rows * scale_bytes, stream_);
  const auto compare = [&](const char* what, std::int64_t row, const std::vector<std::byte>& expected,
                           const std::byte* seen) {
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) wrong += expected[i] != seen[i] ? 1 : 0;
    mismatches.add(wrong, [&] { return fmt::format("{} of row {}", what, row); });
  };
  team_.for_ranges(set.rows.rows, 8, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(set.columns));
    std::vector<float> values(bits.size());
    std::vector<std::byte> expected(static_cast<std::size_t>(row_bytes));
    std::vector<std::byte> expected_scales(static_cast<std::size_t>(scale_bytes));
    for (std::int64_t row = begin; row < end; ++row) {
      set.rows.make_row(row, reinterpret_cast<std::byte*>(bits.data()));
      std::ranges::transform(bits, values.begin(), BFloat16::load);
      format.quantize(values, expected.data(), expected_scales.data());
      compare("elements", row, expected, elements.data() + row * row_bytes);
      compare("scales", row, expected_scales, scales.data() + row * scale_bytes);
    }
  });
}

}  // namespace moelink::perf
