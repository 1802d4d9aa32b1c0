// Random shapes, routings and options against the reference. A failure names its seed.
#include "exchange/runner.hpp"
#include "support/fewer.hpp"

namespace moelink::test {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  [[nodiscard]] std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  [[nodiscard]] bool one_in(int n) { return between(1, n) == 1; }
  template <class T, std::size_t N>
  [[nodiscard]] T any(const T (&values)[N]) {
    return values[between(0, static_cast<std::int64_t>(N) - 1)];
  }

 private:
  std::mt19937 random_;
};

constexpr DataType kTypes[] = {DataType::bfloat16, DataType::float16, DataType::float32};

/// Batched rows for the worst case of many experts would be mostly empty gigabytes.
constexpr std::int64_t kMostRows = 20000;

Payload draw_payload(Dice& dice) {
  Payload payload{.type = dice.any(kTypes)};
  if (dice.one_in(4)) payload = {.type = DataType::bytes, .row_bytes = 16 * dice.between(1, 40)};
  if (dice.one_in(3)) payload.scale_bytes = dice.one_in(2) ? dice.between(1, 40) : 16 * dice.between(1, 4);
  return payload;
}

void draw_capacity(Dice& dice, Shape& shape) {
  const std::int64_t entries = shape.num_tokens * shape.top_k;
  if (shape.layout == Layout::packed) {
    shape.alignment = 1 << dice.between(0, 7);
    if (dice.one_in(3)) shape.capacity = (dice.between(0, entries) / shape.alignment + 1) * shape.alignment;
  } else if (dice.one_in(2) || shape.num_experts * entries > kMostRows) {
    shape.capacity = dice.between(1, 1 + 4 * entries / shape.num_experts);
  }
}

Shape draw_shape(unsigned seed) {
  Dice dice(seed);
  Shape shape{.num_tokens = dice.one_in(2) ? dice.between(0, 48) : dice.between(49, 900),
              .num_experts = dice.one_in(4) ? dice.between(1, 8) : dice.between(9, 320),
              .top_k = static_cast<int>(dice.one_in(4) ? dice.between(1, 32) : dice.between(1, 10)),
              .hidden = 8 * dice.between(1, 24),
              .payload = draw_payload(dice),
              .combine = {.expert_output = dice.any(kTypes), .output = dice.any(kTypes)},
              .index = dice.one_in(2) ? IndexType::int32 : IndexType::int64,
              .layout = dice.one_in(3) ? Layout::batched : Layout::packed};
  draw_capacity(dice, shape);
  constexpr WeightMode kModes[] = {WeightMode::on_combine, WeightMode::on_input, WeightMode::none};
  shape.weight_mode = dice.any(kModes);
  if (shape.payload.type == DataType::bytes && shape.weight_mode == WeightMode::on_input) {
    shape.weight_mode = WeightMode::on_combine;
  }
  shape.accumulate = dice.one_in(3);
  shape.shared = dice.one_in(3);
  shape.zero_pads = dice.one_in(3);
  shape.caller_rows = dice.one_in(3);
  shape.extra_stride_bytes = dice.one_in(3) ? 16 * dice.between(1, 5) : 0;
  if (dice.one_in(4)) shape.device_num_tokens = dice.between(-2, shape.num_tokens + 2);
  shape.seed = seed;
  return shape;
}

class RandomShapes : public DeviceTest {};

TEST_P(RandomShapes, MatchTheReferenceBitForBit) {
  const unsigned num_shapes = on_gpu() ? 24U : 160U / kFewer;  // on a GPU every shape is compiled first
  Stream stream(device());
  for (unsigned seed = 0; seed < num_shapes && !HasFailure(); ++seed) {
    const Shape shape = draw_shape(seed);
    const Problem problem(shape, kAllRoutings[seed % std::size(kAllRoutings)]);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    check_problem(problem, stream);
  }
}

TEST_P(RandomShapes, SameBitsFromOneTwoAndManyHostThreads) {
  if (on_gpu()) GTEST_SKIP() << "a host stream has threads, a CUDA stream has not";
  for (unsigned seed = 1000; seed < 1000 + 30U / kFewer && !HasFailure(); ++seed) {
    const Problem problem(draw_shape(seed), kAllRoutings[seed % std::size(kAllRoutings)]);
    const Expected expected(problem);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (const int threads : {1, 2, 5}) {
      Stream stream(device(), {.num_threads = threads});
      Runner runner(problem, stream);
      expect_same(runner.run(expected), problem, expected);
    }
  }
}

MOELINK_TEST_ON_DEVICES(RandomShapes);

}  // namespace
}  // namespace moelink::test
