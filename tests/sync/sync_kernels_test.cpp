// Barrier, waits, orders, conversions and bulk copies as kernels: the same source on the host and, where there is one,
// on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "kernels/barrier_exercise.cuh"
#include "kernels/bulk_round_trip.cuh"
#include "kernels/convert_all.cuh"
#include "kernels/litmus.cuh"
#include "moelink/buffer.hpp"
#include "runtime/pinned_buffer.hpp"
#include "support/test_kernels.hpp"

namespace moelink::test {
namespace {

constexpr u64 kShortNs = 20'000'000;

class SyncOn : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }

  [[nodiscard]] Device device() const { return GetParam(); }
  /// Blocks that are resident together without asking.
  [[nodiscard]] int max_grid() const { return device().is_host() ? kHostThreads : 64; }
  [[nodiscard]] int threads() const { return device().is_host() ? 1 : 128; }

  [[nodiscard]] Stream make_stream() const { return Stream(device(), {.num_threads = kHostThreads}); }

  /// Zeroed memory of the device.
  [[nodiscard]] Buffer zeros(std::size_t size_bytes, StreamView stream) const {
    Buffer buffer(device(), size_bytes);
    fill_bytes(buffer.data(), 0, size_bytes, stream);
    return buffer;
  }

  template <class T>
  [[nodiscard]] Buffer upload(std::span<const T> values, StreamView stream) const {
    Buffer buffer(device(), values.size_bytes());
    copy_bytes(buffer.data(), values.data(), values.size_bytes(), stream);
    stream.synchronize();
    return buffer;
  }

  template <class T>
  [[nodiscard]] std::vector<T> download(const Buffer& buffer, StreamView stream) const {
    std::vector<T> values(buffer.size_bytes() / sizeof(T));
    copy_bytes(values.data(), buffer.data(), buffer.size_bytes(), stream);
    stream.synchronize();
    return values;
  }

  static constexpr int kHostThreads = 4;
};
INSTANTIATE_TEST_SUITE_P(Devices, SyncOn, testing::Values(Device::host(), Device::cuda(0)),
                         [](const auto& tested) { return std::string(tested.param.is_host() ? "host" : "cuda"); });

TEST_P(SyncOn, BarriersOfChangingGridsOnOneWordLetNobodyThroughEarly) {
  const Stream stream = make_stream();
  const auto kernel = load_test_kernel<BarrierExercise>(device(), {.threads = threads()});
  const Buffer word = zeros(sizeof(GridBarrierWord), stream);
  const Buffer values = zeros(static_cast<std::size_t>(max_grid() * threads()) * sizeof(u64), stream);
  const Buffer num_wrong = zeros(sizeof(u64), stream);
  const Buffer num_failed = zeros(sizeof(u64), stream);
  constexpr int kRounds = 25;
  for (int launch = 0; launch < 40; ++launch) {
    const BarrierExercise::Args args{.word = word.as<GridBarrierWord>(),
                                     .values = values.as<u64>(),
                                     .num_wrong = num_wrong.as<u64>(),
                                     .num_failed = num_failed.as<u64>(),
                                     .first_stamp = static_cast<u64>(launch * kRounds + 1),
                                     .rounds = kRounds,
                                     .absent_block = -1,
                                     .fault = {}};
    kernel->launch({.grid = 1 + launch * 7 % max_grid()}, &args, stream);
  }
  EXPECT_EQ(download<u64>(num_wrong, stream)[0], 0U);
  EXPECT_EQ(download<u64>(num_failed, stream)[0], 0U);
  EXPECT_EQ(download<u64>(word, stream)[0] & 0xffffffff, 0U) << "arrivals are left over";
}

TEST_P(SyncOn, ABarrierThatABlockMissesEndsWithAFaultRecordAndALivingContext) {
  const Stream stream = make_stream();
  const auto kernel = load_test_kernel<BarrierExercise>(device(), {.threads = threads()});
  const Buffer word = zeros(sizeof(GridBarrierWord), stream);
  const Buffer fault_word = zeros(sizeof(u64), stream);
  const Buffer values = zeros(static_cast<std::size_t>(max_grid() * threads()) * sizeof(u64), stream);
  const Buffer counts = zeros(2 * sizeof(u64), stream);
  const PinnedBuffer pinned(device(), sizeof(FaultRecord));
  const auto* record = static_cast<const FaultRecord*>(pinned.data());
  const BarrierExercise::Args args{.word = word.as<GridBarrierWord>(),
                                   .values = values.as<u64>(),
                                   .num_wrong = counts.as<u64>(),
                                   .num_failed = counts.as<u64>() + 1,
                                   .first_stamp = 1,
                                   .rounds = 1000,
                                   .absent_block = 2,
                                   .fault = {.word = fault_word.as<u64>(),
                                             .record = static_cast<FaultRecord*>(pinned.data()),
                                             .rank = 5,
                                             .timeout_ns = kShortNs}};
  kernel->launch({.grid = 4}, &args, stream);
  stream.synchronize();
  EXPECT_EQ(download<u64>(counts, stream)[1], 3U) << "blocks that left with the fault";
  const auto fault = read_fault(*record);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->fault.kind, FaultKind::wait_expired);
  EXPECT_EQ(fault->fault.phase, FaultPhase::grid_barrier);
  EXPECT_EQ(fault->rank, 5);
  EXPECT_GT(fault->waited_ns, kShortNs);
  EXPECT_EQ(FaultWord::unpacked(download<u64>(fault_word, stream)[0]).rank, 5);
}

TEST_P(SyncOn, AnAbortOfTheHostEndsARunningKernel) {
  const Stream stream = make_stream();
  const auto kernel = load_test_kernel<BarrierExercise>(device(), {.threads = threads()});
  const Buffer word = zeros(sizeof(GridBarrierWord), stream);
  const Buffer fault_word = zeros(sizeof(u64), stream);
  const Buffer values = zeros(static_cast<std::size_t>(max_grid() * threads()) * sizeof(u64), stream);
  const Buffer counts = zeros(2 * sizeof(u64), stream);
  const PinnedBuffer pinned(device(), sizeof(FaultRecord));
  auto* record = static_cast<FaultRecord*>(pinned.data());
  const BarrierExercise::Args args{.word = word.as<GridBarrierWord>(),
                                   .values = values.as<u64>(),
                                   .num_wrong = counts.as<u64>(),
                                   .num_failed = counts.as<u64>() + 1,
                                   .first_stamp = 1,
                                   .rounds = 1,
                                   .absent_block = 0,
                                   .fault = {.word = fault_word.as<u64>(), .record = record, .rank = 1}};
  kernel->launch({.grid = 2}, &args, stream);
  request_abort(*record);
  stream.synchronize();
  const auto fault = read_fault(*record);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->fault.kind, FaultKind::aborted);
}

class LitmusOn : public SyncOn {
 protected:
  struct Outcome {
    u64 num_wrong = 0;
    u64 num_lost = 0;
    int num_both_missed = 0;
    int num_overlaps = 0;  // rounds in which somebody missed somebody's store: without any, nothing was tested
  };

  [[nodiscard]] Outcome play(LitmusCase which) const {
    constexpr int kRounds = 4000;
    const Stream stream = make_stream();
    const auto kernel = load_test_kernel<Litmus>(device(), {.threads = device().is_host() ? 1 : 32, .which = which});
    const Buffer rounds = zeros(kRounds * sizeof(Litmus::Round), stream);
    const Buffer words = zeros(3 * sizeof(u64), stream);
    const Litmus::Args args{.rounds = rounds.as<Litmus::Round>(),
                            .num_rounds = kRounds,
                            .meeting = words.as<u64>(),
                            .num_wrong = words.as<u64>() + 1,
                            .num_lost = words.as<u64>() + 2,
                            .fault = {}};
    kernel->launch({.grid = 2}, &args, stream);
    const auto counts = download<u64>(words, stream);
    Outcome outcome{.num_wrong = counts[1], .num_lost = counts[2]};
    for (const Litmus::Round& round : download<Litmus::Round>(rounds, stream)) {
      outcome.num_both_missed += round.seen_by_0.value == 0 && round.seen_by_1.value == 0 ? 1 : 0;
      outcome.num_overlaps += round.seen_by_0.value == 0 || round.seen_by_1.value == 0 ? 1 : 0;
    }
    return outcome;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, LitmusOn, testing::Values(Device::host(), Device::cuda(0)),
                         [](const auto& tested) { return std::string(tested.param.is_host() ? "host" : "cuda"); });

TEST_P(LitmusOn, WhoSeesTheFlagSeesThePayload) {
  for (const LitmusCase which :
       {LitmusCase::message_store_gpu, LitmusCase::message_store_sys, LitmusCase::message_red_gpu,
        LitmusCase::message_red_sys, LitmusCase::message_exchange_gpu, LitmusCase::message_relayed_gpu}) {
    const Outcome outcome = play(which);
    EXPECT_EQ(outcome.num_wrong, 0U) << "case " << static_cast<int>(which);
    EXPECT_EQ(outcome.num_lost, 0U) << "case " << static_cast<int>(which);
  }
}

TEST_P(LitmusOn, StoreBufferingIsForbiddenUnderFenceSc) {
  int fewest_overlaps = std::numeric_limits<int>::max();
  for (const LitmusCase which : {LitmusCase::store_buffering_gpu, LitmusCase::store_buffering_sys}) {
    const Outcome outcome = play(which);
    EXPECT_EQ(outcome.num_both_missed, 0) << "case " << static_cast<int>(which);
    EXPECT_EQ(outcome.num_lost, 0U);
    fewest_overlaps = std::min(fewest_overlaps, outcome.num_overlaps);
  }
  // On H200 the fence outlasts the blocks' skew: both always see both stores, and the forbidden outcome was never near.
  if (fewest_overlaps == 0 && !HasFailure()) {
    GTEST_SKIP() << "nothing was forbidden, but every store was seen in time in every round: this device cannot tell";
  }
}

bool same_or_both_nan(u32 a, u32 b) {
  return a == b || (std::isnan(std::bit_cast<float>(a)) && std::isnan(std::bit_cast<float>(b)));
}

TEST_P(SyncOn, ConversionsAndSumsHaveTheBitsOfTheHost) {
  constexpr int kCount = 200000;
  std::mt19937 random(1);
  std::vector<u32> floats(kCount);
  std::iota(floats.begin(), floats.begin() + 65536, 0U);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    // Half of them all bits at random, half with the exponents around fp16's range.
    floats[i] = i % 2 == 0 ? static_cast<u32>(random())
                           : (static_cast<u32>(random()) & 0x807fffff) | (96 + static_cast<u32>(random()) % 64) << 23;
  }
  const Stream stream = make_stream();
  const auto kernel = load_test_kernel<ConvertAll>(device(), {.threads = threads()});
  const Buffer input = upload<u32>(floats, stream);
  const Buffer from_bf16 = zeros(65536 * sizeof(u32), stream);
  const Buffer from_fp16 = zeros(65536 * sizeof(u32), stream);
  const Buffer to_bf16 = zeros(kCount * sizeof(u16), stream);
  const Buffer to_fp16 = zeros(kCount * sizeof(u16), stream);
  const Buffer sums = zeros(kCount * sizeof(u32), stream);
  const ConvertAll::Args args{.floats = input.as<u32>(),
                              .count = kCount,
                              .from_bf16 = from_bf16.as<u32>(),
                              .from_fp16 = from_fp16.as<u32>(),
                              .to_bf16 = to_bf16.as<u16>(),
                              .to_fp16 = to_fp16.as<u16>(),
                              .sums = sums.as<u32>()};
  kernel->launch({.grid = max_grid()}, &args, stream);
  const auto seen_from_bf16 = download<u32>(from_bf16, stream);
  const auto seen_from_fp16 = download<u32>(from_fp16, stream);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<u16>(i);
    ASSERT_PRED2(same_or_both_nan, seen_from_bf16[i], float_bits(to_float<Element::bfloat16>(bits))) << i;
    ASSERT_PRED2(same_or_both_nan, seen_from_fp16[i], float_bits(to_float<Element::float16>(bits))) << i;
  }
  const auto seen_to_bf16 = download<u16>(to_bf16, stream);
  const auto seen_to_fp16 = download<u16>(to_fp16, stream);
  const auto seen_sums = download<u32>(sums, stream);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto at = [&](std::size_t k) { return float_from_bits(floats[(i + k) % kCount]); };
    ASSERT_EQ(seen_to_bf16[i], from_float<Element::bfloat16>(at(0))) << std::hex << floats[i];
    ASSERT_EQ(seen_to_fp16[i], from_float<Element::float16>(at(0))) << std::hex << floats[i];
    ASSERT_PRED2(same_or_both_nan, seen_sums[i], float_bits(add_rn(mul_rn(at(0), at(1)), at(2)))) << i;
  }
}

TEST_P(SyncOn, ARowThatWentThroughBulkCopiesIsCompleteBehindItsFlag) {
  if (device().is_host()) {
    GTEST_SKIP() << "bulk copies exist on GPUs only";
  }
  constexpr int kRows = 300;
  constexpr int kWords = 2048;
  std::vector<u32> rows(static_cast<std::size_t>(kRows) * kWords);
  std::iota(rows.begin(), rows.end(), 1U);
  const Stream stream = make_stream();
  const auto kernel = load_test_kernel<BulkRoundTrip>(device(), {.threads = 256, .words = kWords});
  const Buffer input = upload<u32>(rows, stream);
  const Buffer middle = zeros(rows.size() * sizeof(u32), stream);
  const Buffer output = zeros(rows.size() * sizeof(u32), stream);
  const Buffer words = zeros(2 * sizeof(u64), stream);
  const BulkRoundTrip::Args args{.input = input.as<u32>(),
                                 .middle = middle.as<u32>(),
                                 .output = output.as<u32>(),
                                 .flag = words.as<u64>(),
                                 .num_lost = words.as<u64>() + 1,
                                 .rows = kRows,
                                 .fault = {.timeout_ns = 2'000'000'000}};
  kernel->launch({.grid = 2, .scratch_bytes = kWords * 4 + 16}, &args, stream);
  const auto seen = download<u32>(output, stream);
  ASSERT_EQ(download<u64>(words, stream)[1], 0U) << "the receiver's wait expired";
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t i = 0; i < kWords; ++i) {
      ASSERT_EQ(seen[r * kWords + i], rows[r * kWords + kWords - 1 - i]) << "row " << r << ", word " << i;
    }
  }
}

}  // namespace
}  // namespace moelink::test
