// Dispatch and combine within one rank against the reference, on every device: the shapes that users of such libraries
// met failures with, and random ones.
#include "exchange/runner.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

class LocalMoe : public DeviceTest {
 protected:
  void check(const Shape& shape, Routing routing) {
    SCOPED_TRACE(testing::Message() << shape.num_tokens << " tokens, " << shape.num_experts << " experts, top "
                                    << shape.top_k << ", hidden " << shape.hidden << ", " << name_of(shape.layout)
                                    << ", routing " << static_cast<int>(routing) << ", seed " << shape.seed);
    check_problem(Problem(shape, routing), stream_);
  }
  [[nodiscard]] StreamView stream() const { return stream_; }

  Stream stream_{GetParam().is_cuda() && Device::cuda_count() == 0 ? Device::host() : GetParam()};
};

TEST_P(LocalMoe, TokenCountsAtWarpAndBlockBoundaries) {
  for (const std::int64_t tokens : {0, 1, 31, 32, 33, 127, 128, 129, 1000}) {
    check({.num_tokens = tokens, .num_experts = 64, .top_k = 6, .hidden = 64}, Routing::uniform);
  }
}

TEST_P(LocalMoe, ExpertCountsAtBlockSizesAndOfModels) {
  for (const std::int64_t experts : {1, 60, 256, 384, 512, 896, 1024, 1025}) {
    check({.num_tokens = 40, .num_experts = experts, .top_k = 4, .hidden = 64}, Routing::uniform);
    check({.num_tokens = 700, .num_experts = experts, .top_k = 4, .hidden = 64}, Routing::zipf);
  }
}

TEST_P(LocalMoe, MostExperts) {
  check({.num_tokens = 50, .num_experts = 16384, .top_k = 8, .hidden = 32}, Routing::uniform);
  check({.num_tokens = 600, .num_experts = 16384, .top_k = 8, .hidden = 32}, Routing::uniform);
}

TEST_P(LocalMoe, EveryTopK) {
  for (const int k : {1, 3, 5, 7, 10, 16, 22, 32}) {
    check({.num_tokens = 45, .num_experts = 64, .top_k = k, .hidden = 64}, Routing::uniform);
  }
}

TEST_P(LocalMoe, HiddenSizesThatAreNoMultipleOfWideVectors) {
  for (const std::int64_t hidden : {8, 24, 1024, 2688, 2880, 3584}) {
    check({.num_tokens = 9, .num_experts = 16, .top_k = 4, .hidden = hidden}, Routing::uniform);
    check({.num_tokens = 400, .num_experts = 16, .top_k = 4, .hidden = hidden}, Routing::uniform);
  }
}

TEST_P(LocalMoe, DuplicateExpertInOneTokenGetsARowEach) {
  const Shape shape{.num_tokens = 1, .num_experts = 8, .top_k = 2, .hidden = 32};
  check_problem(Problem(shape, {5, 5}), stream());
  check({.num_tokens = 129, .num_experts = 16, .top_k = 8, .hidden = 64}, Routing::duplicates);
  check({.num_tokens = 1000, .num_experts = 16, .top_k = 8, .hidden = 64}, Routing::duplicates);
}

TEST_P(LocalMoe, IdMinusOneTouchesNothing) {
  const Shape shape{.num_tokens = 1, .num_experts = 128, .top_k = 8, .hidden = 32};
  check_problem(Problem(shape, std::vector<std::int64_t>(8, -1)), stream());
  check({.num_tokens = 500, .num_experts = 16, .top_k = 8, .hidden = 32}, Routing::holes);
}

TEST_P(LocalMoe, IdOutOfRangeIsDroppedCountedAndReported) {
  const Shape shape{.num_tokens = 4, .num_experts = 64, .top_k = 1, .hidden = 32};
  const Problem problem(shape, {3, 64, 5, 3});
  const Expected expected(problem);
  Runner runner(problem, stream());
  expect_same(runner.run(expected), problem, expected);
  EXPECT_EQ(runner.exchange().data_errors().ids_out_of_range, 1);
  try {
    runner.exchange().check();
    ADD_FAILURE() << "not reported";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    EXPECT_NE(std::string(error.what()).find("1 expert ids outside"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(runner.exchange().check()) << "a data error is reported once";
  EXPECT_FALSE(runner.exchange().data_errors().any());
}

TEST_P(LocalMoe, Int64IdsWhoseLowHalfLooksValidAreOutOfRange) {
  const Shape shape{.num_tokens = 3, .num_experts = 64, .top_k = 2, .hidden = 32, .index = IndexType::int64};
  check_problem(Problem(shape, {1, std::int64_t{1} << 32, std::int64_t{-1} << 32, 2, 0xffffffffLL, 63}), stream());
  for (const std::int64_t tokens : {33, 1000}) {
    check({.num_tokens = tokens, .num_experts = 64, .top_k = 4, .hidden = 32, .index = IndexType::int64},
          Routing::garbage);
  }
}

TEST_P(LocalMoe, AllTokensToOneExpert) {
  for (const Layout layout : {Layout::packed, Layout::batched}) {
    Shape shape{.num_tokens = 4096, .num_experts = 8, .top_k = 1, .hidden = 32, .layout = layout};
    check(shape, Routing::one_expert);
    shape.capacity = 1024;
    check(shape, Routing::one_expert);
  }
}

TEST_P(LocalMoe, CapacityMetExactlyDropsNothingAndOneLessDropsTheLast) {
  for (const std::int64_t tokens : {32, 512}) {
    for (const std::int64_t missing : {0, 1}) {
      Shape packed{.num_tokens = tokens, .num_experts = 8, .top_k = 4, .hidden = 32, .capacity = tokens * 4 - missing};
      check(packed, Routing::uniform);
      Shape batched{.num_tokens = tokens,
                    .num_experts = 8,
                    .top_k = 1,
                    .hidden = 32,
                    .layout = Layout::batched,
                    .capacity = tokens - missing};
      check(batched, Routing::one_expert);
    }
  }
}

TEST_P(LocalMoe, CapacityOfOneRowAndOfNone) {
  for (const std::int64_t tokens : {20, 600}) {
    check({.num_tokens = tokens, .num_experts = 8, .top_k = 2, .hidden = 32, .capacity = 1}, Routing::uniform);
    check({.num_tokens = tokens, .num_experts = 8, .top_k = 2, .hidden = 32, .layout = Layout::batched, .capacity = 1},
          Routing::uniform);
  }
}

TEST_P(LocalMoe, CapacityThatCutsAPaddedExpert) {
  for (const std::int64_t tokens : {60, 600}) {
    check({.num_tokens = tokens,
           .num_experts = 16,
           .top_k = 3,
           .hidden = 32,
           .alignment = 16,
           .capacity = 64,
           .zero_pads = true},
          Routing::uniform);
  }
}

TEST_P(LocalMoe, PadRowsAreNeverReadByCombineAndZeroedOnRequest) {
  // The runner fills the pads of the expert output with NaN.
  for (const std::int64_t tokens : {3, 300}) {
    for (const bool zero_pads : {false, true}) {
      check(
          {.num_tokens = tokens, .num_experts = 32, .top_k = 4, .hidden = 64, .alignment = 128, .zero_pads = zero_pads},
          Routing::uniform);
      check({.num_tokens = tokens,
             .num_experts = 32,
             .top_k = 4,
             .hidden = 64,
             .layout = Layout::batched,
             .zero_pads = zero_pads},
            Routing::zipf);
    }
  }
}

TEST_P(LocalMoe, EveryPayloadAndOutputType) {
  const DataType types[] = {DataType::bfloat16, DataType::float16, DataType::float32};
  for (const DataType in : types) {
    for (const DataType out : types) {
      Shape shape{.num_tokens = 37,
                  .num_experts = 16,
                  .top_k = 4,
                  .hidden = 72,
                  .payload = {.type = in},
                  .combine = {.expert_output = in, .output = out}};
      for (const bool accumulate : {false, true}) {
        shape.accumulate = accumulate;
        check(shape, Routing::uniform);
      }
    }
  }
}

TEST_P(LocalMoe, OpaqueRowsTravelWithTheirScales) {
  for (const std::int64_t scale_bytes : {0, 1, 4, 6, 56, 224}) {
    for (const std::int64_t tokens : {17, 700}) {
      check({.num_tokens = tokens,
             .num_experts = 16,
             .top_k = 4,
             .hidden = 64,
             .payload = {.type = DataType::bytes, .row_bytes = 176, .scale_bytes = scale_bytes}},
            Routing::uniform);
    }
  }
}

TEST_P(LocalMoe, WeightsOnInputOnCombineOrNowhere) {
  for (const WeightMode mode : {WeightMode::on_combine, WeightMode::on_input, WeightMode::none}) {
    for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
      for (const std::int64_t tokens : {21, 400}) {
        check({.num_tokens = tokens,
               .num_experts = 16,
               .top_k = 4,
               .hidden = 64,
               .payload = {.type = type},
               .combine = {.expert_output = type},
               .weight_mode = mode},
              Routing::uniform);
      }
    }
  }
}

TEST_P(LocalMoe, DeviceSideCountsAreObeyedAndClampedWhenTheyLie) {
  for (const std::int64_t tokens : {20, 600}) {
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, tokens - 1, tokens, tokens + 1, std::int64_t{-1},
                                     std::int64_t{INT32_MAX}, std::int64_t{INT32_MIN}}) {
      check({.num_tokens = tokens, .num_experts = 16, .top_k = 4, .hidden = 32, .device_num_tokens = count},
            Routing::garbage);
    }
  }
}

TEST_P(LocalMoe, StridedInputsOutputsAndCallersRows) {
  for (const std::int64_t tokens : {20, 600}) {
    for (const Layout layout : {Layout::packed, Layout::batched}) {
      check({.num_tokens = tokens,
             .num_experts = 16,
             .top_k = 4,
             .hidden = 40,
             .payload = {.scale_bytes = 16},
             .layout = layout,
             .accumulate = true,
             .caller_rows = true,
             .extra_stride_bytes = 48},
            Routing::uniform);
    }
  }
}

TEST_P(LocalMoe, ReusedRoutingMovesOtherTokensToTheSameRows) {
  for (const std::int64_t tokens : {20, 600}) {
    for (const WeightMode mode : {WeightMode::on_combine, WeightMode::on_input}) {
      const Shape shape{.num_tokens = tokens,
                        .num_experts = 16,
                        .top_k = 4,
                        .hidden = 40,
                        .payload = {.scale_bytes = 8},
                        .alignment = 8,
                        .weight_mode = mode,
                        .zero_pads = true};
      const Problem first(shape, Routing::holes);
      Runner runner(first, stream());
      const Expected expected(first);
      expect_same(runner.run(expected), first, expected);

      Problem second = first;  // the ids and weights stay; what is loaded instead must not be read
      Shape other_shape = shape;
      other_shape.seed = 99;
      const Problem other(other_shape, Routing::garbage);
      second.tokens = other.tokens;
      second.scales = other.scales;
      runner.load(other);
      Problem loaded = second;
      loaded.prior_output = other.prior_output;
      const Expected expected_second(loaded);
      expect_same(runner.run(expected_second, true), loaded, expected_second);
    }
  }
}

TEST_P(LocalMoe, ReusedRoutingKeepsTheDevicesCount) {
  const Shape shape{.num_tokens = 50, .num_experts = 16, .top_k = 4, .hidden = 32, .device_num_tokens = 33};
  const Problem problem(shape, Routing::uniform);
  const Expected expected(problem);
  Runner runner(problem, stream());
  expect_same(runner.run(expected), problem, expected);
  expect_same(runner.run(expected, true), problem, expected);
}

TEST_P(LocalMoe, CallsOfDifferentSizesShareOneExchange) {
  Shape largest{.num_tokens = 900, .num_experts = 24, .top_k = 4, .hidden = 48};
  ExchangeConfig config = config_for(largest);
  Exchange exchange(Communicator::single(device()), config);
  for (const std::int64_t tokens : {900, 1, 0, 300, 2, 899}) {
    Shape shape = largest;
    shape.num_tokens = tokens;
    shape.capacity = config.max_rows.rows();
    const Problem problem(shape, Routing::uniform);
    const Expected expected(problem);
    Runner runner(problem, config, stream());
    for (int round = 0; round < 2; ++round) expect_same(runner.run(expected), problem, expected);
  }
}

TEST_P(LocalMoe, SameCallTwiceGivesIdenticalBits) {
  for (const std::int64_t tokens : {64, 1500}) {
    const Shape shape{.num_tokens = tokens, .num_experts = 48, .top_k = 8, .hidden = 64};
    const Problem problem(shape, Routing::zipf);
    const Expected expected(problem);
    Runner runner(problem, stream());
    const Outcome first = runner.run(expected);
    const Outcome second = runner.run(expected);
    EXPECT_TRUE(first == second);
    EXPECT_EQ(first.rows, second.rows);
  }
}

TEST_P(LocalMoe, HostCountsAreValidOnceTheStreamHasPassed) {
  const Shape shape{.num_tokens = 100, .num_experts = 16, .top_k = 4, .hidden = 32};
  const Problem problem(shape, Routing::zipf);
  Runner runner(problem, stream());
  const ExpertBatch batch = runner.exchange().dispatch(runner.dispatch_args(), stream());
  const auto counts = runner.exchange().host_counts(stream());
  stream().synchronize();
  const Expected expected(problem);
  EXPECT_EQ(std::vector<std::int32_t>(counts.begin(), counts.end()), expected.routing.counts);
  EXPECT_EQ(batch.capacity, config_for(shape).max_rows.rows());
}

TEST_P(LocalMoe, ExpertOutputThatEndsEarlyIsNotReadPastItsEnd) {
  const Shape shape{.num_tokens = 8, .num_experts = 4, .top_k = 1, .hidden = 32};
  const Problem problem(shape, {0, 1, 2, 3, 0, 1, 2, 3});
  Expected expected(problem);
  Runner runner(problem, stream());
  const ExpertBatch batch = runner.exchange().dispatch(runner.dispatch_args(), stream());
  runner.load_expert_output(expected);
  CombineArgs args = runner.combine_args(batch);
  args.expert_output.rows = 6;  // the rows of expert 3 are missing: tokens 3 and 7 become zero
  runner.exchange().combine(args, stream());
  const Bytes output = runner.read(batch).output;
  for (std::int64_t token = 0; token < 8; ++token) {
    const bool zero = std::all_of(output.begin() + token * 64, output.begin() + (token + 1) * 64,
                                  [](unsigned char byte) { return byte == 0; });
    EXPECT_EQ(zero, token % 4 == 3) << token;
  }
}

TEST_P(LocalMoe, AnSmBudgetChangesNothingButTheGrid) {
  for (const std::int64_t tokens : {40, 900}) {
    const Shape shape{.num_tokens = tokens, .num_experts = 16, .top_k = 4, .hidden = 64};
    const Problem problem(shape, Routing::uniform);
    const Expected expected(problem);
    for (const int sms : {1, 2, 7}) {
      Runner runner(problem, stream());
      DispatchArgs dispatch = runner.dispatch_args();
      dispatch.max_sms = sms;
      const ExpertBatch batch = runner.exchange().dispatch(dispatch, stream());
      runner.load_expert_output(expected);
      CombineArgs combine = runner.combine_args(batch);
      combine.max_sms = sms;
      runner.exchange().combine(combine, stream());
      expect_same(runner.read(batch), problem, expected);
    }
  }
}

MOELINK_TEST_ON_DEVICES(LocalMoe);

}  // namespace
}  // namespace moelink::test
