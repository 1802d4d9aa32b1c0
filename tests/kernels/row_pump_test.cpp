// The pump on the host and, where there is one, on a GPU: rows in one part and in several, with scales that the ring
// carries and others, weighted and not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/pump_relay.cuh"
#include "moelink/buffer.hpp"
#include "moelink/quantize.hpp"
#include "moelink/stream.hpp"
#include "reference/element.hpp"
#include "support/test_kernels.hpp"

namespace moelink::test {
namespace {

constexpr int kHostThreads = 3;
constexpr unsigned char kUntouched = 0xcd;

class RowPumpOn : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && Device::cuda_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  [[nodiscard]] Device device() const { return GetParam(); }

  template <class T>
  [[nodiscard]] Buffer upload(const std::vector<T>& values, StreamView stream) const {
    Buffer buffer(device(), std::max<std::size_t>(values.size() * sizeof(T), 16));
    copy_bytes(buffer.data(), values.data(), values.size() * sizeof(T), stream);
    stream.synchronize();
    return buffer;
  }

  struct Run {
    int rows_per_block = 0;
    int rounds = 2;
    bool places_late = false;  ///< PumpRelay::Args
  };
  void check(PumpRelay::Spec spec, const Run& run) const;
  /// If the spec quantises: rows that are not, `input` and `scales` become what they are quantised to.
  [[nodiscard]] std::vector<unsigned char> quantize_input(const PumpRelay::Spec& spec, std::int64_t num_rows,
                                                          std::vector<unsigned char>& input,
                                                          std::vector<unsigned char>& scales) const;
};
INSTANTIATE_TEST_SUITE_P(Devices, RowPumpOn, testing::Values(Device::host(), Device::cuda(0)),
                         [](const auto& tested) { return std::string(tested.param.is_host() ? "host" : "cuda"); });

/// Rows as they must come out; weights multiply in bf16.
std::vector<unsigned char> expected_rows(const PumpRelay::Spec& spec, const std::vector<unsigned char>& input,
                                         const std::vector<std::int32_t>& places, const std::vector<float>& weights) {
  std::vector<unsigned char> rows(places.size() * static_cast<std::size_t>(spec.row_bytes), kUntouched);
  for (std::size_t entry = 0; entry < places.size(); ++entry) {
    if (places[entry] < 0) continue;
    const unsigned char* from = input.data() + entry / static_cast<std::size_t>(spec.top_k) * spec.row_bytes;
    unsigned char* to = rows.data() + places[entry] * spec.row_bytes;
    std::memcpy(to, from, static_cast<std::size_t>(spec.row_bytes));
    if (spec.weighted == Element::none) continue;
    for (std::int64_t i = 0; i < spec.row_bytes / 2; ++i) {
      reference::store(to, DataType::bfloat16, i, weights[entry] * reference::load(from, DataType::bfloat16, i));
    }
  }
  return rows;
}

/// Slots as they must be left: a row, its scales behind it.
std::vector<unsigned char> expected_slots(const PumpRelay::Spec& spec, std::int64_t slot_bytes,
                                          const std::vector<unsigned char>& input,
                                          const std::vector<unsigned char>& scales, int rows_per_block,
                                          bool places_late) {
  const std::int64_t num_rows = static_cast<std::int64_t>(input.size()) / spec.row_bytes;
  std::vector<unsigned char> slots(static_cast<std::size_t>(num_rows * slot_bytes), kUntouched);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (!PumpRelay::has_slot(static_cast<i32>(row % rows_per_block), places_late)) continue;
    unsigned char* slot = slots.data() + row * slot_bytes;
    std::memcpy(slot, input.data() + row * spec.row_bytes, static_cast<std::size_t>(spec.row_bytes));
    if (spec.scale_bytes == 0) continue;
    std::memcpy(slot + spec.row_bytes, scales.data() + row * spec.scale_bytes,
                static_cast<std::size_t>(spec.scale_bytes));
  }
  return slots;
}

std::vector<unsigned char> RowPumpOn::quantize_input(const PumpRelay::Spec& spec, std::int64_t num_rows,
                                                     std::vector<unsigned char>& input,
                                                     std::vector<unsigned char>& scales) const {
  if (spec.quantize == QuantFormat::none) return {};
  const Quantization format = spec.quantize == QuantFormat::fp8 ? Quantization::fp8 : Quantization::nvfp4;
  const std::int64_t columns = spec.row_bytes * spec.token_bytes_per_byte() / 2;
  std::vector<unsigned char> raw(static_cast<std::size_t>(num_rows * columns * 2));
  std::mt19937 random(11);
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<unsigned char>(random() % (i % 2 == 0 ? 256 : 64));
  const Stream stream(Device::host(), {.num_threads = kHostThreads});
  Quantizer(Device::host(), {.format = format, .columns = columns})
      .quantize({.input = {raw.data(), DataType::bfloat16, num_rows, columns},
                 .output = {input.data(), DataType::bytes, num_rows, spec.row_bytes},
                 .scales = {scales.data()}},
                stream);
  stream.synchronize();
  return raw;
}

void RowPumpOn::check(PumpRelay::Spec spec, const Run& run) const {
  SCOPED_TRACE(std::to_string(spec.row_bytes) + " bytes, scales " + std::to_string(spec.scale_bytes) + ", top-k " +
               std::to_string(spec.top_k));
  std::mt19937 random(7);
  const int grid = device().is_host() ? kHostThreads : 16;
  const int num_rows = grid * run.rows_per_block;
  const auto num_entries = static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(spec.top_k);
  std::vector<unsigned char> input(static_cast<std::size_t>(num_rows * spec.row_bytes));
  std::vector<unsigned char> scales(static_cast<std::size_t>(num_rows) * spec.scale_bytes);
  // The upper byte of a bf16 stays small, so that products are numbers.
  for (std::size_t i = 0; i < input.size(); ++i)
    input[i] = static_cast<unsigned char>(random() % (i % 2 == 0 ? 256 : 64));
  for (auto& byte : scales) byte = static_cast<unsigned char>(random());
  const std::vector<unsigned char> raw = quantize_input(spec, num_rows, input, scales);
  std::vector<std::int32_t> places(num_entries);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random);
  for (auto& place : places) place = random() % 4 == 0 ? -1 : place;
  std::vector<float> weights(num_entries);
  for (auto& weight : weights) weight = static_cast<float>(random() % 1000) / 256.0F;

  const Stream stream(device(), {.num_threads = kHostThreads});
  spec.threads = device().is_host() ? 1 : 512;
  const auto kernel = load_test_kernel<PumpRelay>(device(), spec);
  const std::int64_t slot_bytes = (spec.row_bytes + spec.scale_bytes + 15) / 16 * 16;
  const int ring_bytes = device().is_host() ? 0 : 64 << 10;
  const Buffer input_buffer = upload(raw.empty() ? input : raw, stream);
  const Buffer scales_buffer = upload(scales, stream);
  const Buffer places_buffer = upload(places, stream);
  const Buffer weights_buffer = upload(weights, stream);
  std::vector<unsigned char> slots(static_cast<std::size_t>(num_rows * slot_bytes));
  const Buffer words = upload(std::vector<std::uint64_t>(static_cast<std::size_t>(num_rows) + 1), stream);
  std::vector<unsigned char> rows(num_entries * static_cast<std::size_t>(spec.row_bytes), kUntouched);
  std::vector<unsigned char> row_scales(num_entries * static_cast<std::size_t>(spec.scale_bytes), kUntouched);
  const auto slots_after = expected_slots(spec, slot_bytes, input, scales, run.rows_per_block, run.places_late);
  for (int round = 1; round <= run.rounds; ++round) {
    const Buffer slots_buffer = upload(std::vector<unsigned char>(slots.size(), kUntouched), stream);
    const Buffer rows_buffer = upload(std::vector<unsigned char>(rows.size(), kUntouched), stream);
    const Buffer row_scales_buffer = upload(std::vector<unsigned char>(row_scales.size(), kUntouched), stream);
    const PumpRelay::Args args{.input = input_buffer.as<u8>(),
                               .input_scales = spec.scale_bytes != 0 ? scales_buffer.as<u8>() : nullptr,
                               .slots = slots_buffer.as<u8>(),
                               .slot_bytes = slot_bytes,
                               .flags = words.as<u64>() + 1,
                               .places = places_buffer.as<i32>(),
                               .weights = weights_buffer.as<float>(),
                               .to = {.rows = rows_buffer.as<u8>(),
                                      .row_stride_bytes = spec.row_bytes,
                                      .row_scales = row_scales_buffer.as<u8>(),
                                      .streaming = round % 2 == 0},
                               .epoch = static_cast<u64>(round),
                               .rows_per_block = run.rows_per_block,
                               .places_late = run.places_late,
                               .ring_bytes = ring_bytes,
                               .num_lost = words.as<u64>(),
                               .fault = {}};
    kernel->launch({.grid = grid, .scratch_bytes = PumpScratch(0, spec.top_k, ring_bytes).total}, &args, stream);
    copy_bytes(rows.data(), rows_buffer.data(), rows.size(), stream);
    copy_bytes(row_scales.data(), row_scales_buffer.data(), row_scales.size(), stream);
    copy_bytes(slots.data(), slots_buffer.data(), slots.size(), stream);
    stream.synchronize();
    ASSERT_TRUE(slots_after == slots) << "round " << round;
    ASSERT_TRUE(expected_rows(spec, input, places, weights) == rows) << "round " << round;
    PumpRelay::Spec scales_alone = spec;
    scales_alone.row_bytes = spec.scale_bytes;
    scales_alone.weighted = Element::none;
    ASSERT_TRUE(expected_rows(scales_alone, scales, places, weights) == row_scales) << "round " << round;
  }
}

TEST_P(RowPumpOn, RowsOfOnePartReachAllTheirPlaces) {
  check({.row_bytes = 16, .top_k = 1}, {.rows_per_block = 100});
  check({.row_bytes = 4096, .top_k = 8}, {.rows_per_block = 100});
  check({.row_bytes = 64, .top_k = 32}, {.rows_per_block = 40});
  check({.row_bytes = 7168, .top_k = 3}, {.rows_per_block = 1});
}
TEST_P(RowPumpOn, RowsOfSeveralPartsReachAllTheirPlaces) {
  check({.row_bytes = 14336, .top_k = 8}, {.rows_per_block = 50});
  check({.row_bytes = 28672 + 16, .top_k = 2}, {.rows_per_block = 30});
}
TEST_P(RowPumpOn, StagesAreNotFilledAgainBeforeTheirCopiesAreRead) {
  // Nothing to place, so that only copies hold the stages.
  for (const i64 row_bytes : {4096, 7168, 28672}) {
    check({.row_bytes = row_bytes, .top_k = 1}, {.rows_per_block = 200, .rounds = 4, .places_late = true});
  }
}
TEST_P(RowPumpOn, FlagsComeBehindTheirCopies) {
  // Short rows are read by the block after as soon as their flag is there.
  check({.row_bytes = 512, .scale_bytes = 16, .top_k = 1}, {.rows_per_block = 300, .rounds = 8, .places_late = true});
}
TEST_P(RowPumpOn, ScalesGoWithTheirRows) {
  for (const i32 scale_bytes : {1, 6, 16, 63, 224, 4096})
    check({.row_bytes = 1024, .scale_bytes = scale_bytes, .top_k = 4}, {.rows_per_block = 40});
  check({.row_bytes = 14336, .scale_bytes = 448, .top_k = 4}, {.rows_per_block = 20});
}
TEST_P(RowPumpOn, RowsAreQuantisedOnceWhereverTheyGo) {
  // Whole blocks, and a last one that is short; more rows than stages, so that each stage is used for both kinds.
  const auto quantizing = [](i64 row_bytes, i32 scale_bytes, i32 top_k, QuantFormat format) {
    return PumpRelay::Spec{.row_bytes = row_bytes,
                           .scale_bytes = scale_bytes,
                           .top_k = top_k,
                           .quantize = format,
                           .input = Element::bfloat16};
  };
  check(quantizing(2048, 64, 8, QuantFormat::fp8), {.rows_per_block = 60});
  check(quantizing(2048, 64, 1, QuantFormat::fp8), {.rows_per_block = 200, .rounds = 4, .places_late = true});
  check(quantizing(1488, 48, 3, QuantFormat::fp8), {.rows_per_block = 30});
  check(quantizing(1792, 224, 2, QuantFormat::nvfp4), {.rows_per_block = 45, .rounds = 6});
}
TEST_P(RowPumpOn, WeightsMultiplyWhatIsPlacedNotWhatIsPassedOn) {
  check({.row_bytes = 2064, .scale_bytes = 12, .top_k = 4, .weighted = Element::bfloat16}, {.rows_per_block = 40});
  check({.row_bytes = 14336, .top_k = 8, .weighted = Element::bfloat16}, {.rows_per_block = 10});
}
TEST_P(RowPumpOn, ManyLaunchesWithTheSameFlags) {
  check({.row_bytes = 2048, .scale_bytes = 32, .top_k = 4}, {.rows_per_block = 37, .rounds = 60});
}

}  // namespace
}  // namespace moelink::test
