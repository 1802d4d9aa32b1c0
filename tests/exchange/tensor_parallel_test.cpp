// Tensor parallel with ranks as threads of this process: every way to sum, bit for bit against the reference.
#include "moelink/protocol/tensor_parallel.hpp"
#include "exchange/tensor_parallel_group.hpp"
#include "moelink/error.hpp"
#include "support/fewer.hpp"

namespace moelink::test {
namespace {

constexpr TensorParallelSum kSums[] = {TensorParallelSum::push, TensorParallelSum::pull, TensorParallelSum::two_shot,
                                       TensorParallelSum::separate};

class TensorParallel : public DeviceTest {};

/// Where, how, how many ranks, and whether parts stay fp32.
using SumAndGroup = std::tuple<Device, TensorParallelSum, int, bool>;

class EverySumAndGroup : public testing::TestWithParam<SumAndGroup> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  }
  static Device device() { return std::get<0>(GetParam()); }
  static TensorParallelSum sum() { return std::get<1>(GetParam()); }
  static int num_ranks() { return std::get<2>(GetParam()); }
  static bool fp32_partials() { return std::get<3>(GetParam()); }
};

TEST_P(EverySumAndGroup, EveryRoutingAndTokenCountIsSummedExactly) {
  // 13 experts divide by no group; 1032 columns make three tiles, the last of one unit.
  constexpr std::int64_t kMostTokens = 86;
  static_assert(kMostTokens * 3 > 8 * kTpChunkTiles, "more than one step of the eight blocks that the host has");
  const Shape largest{.num_tokens = kMostTokens, .num_experts = 13, .top_k = 3, .hidden = 1032};
  ExchangeConfig config = tp_config(largest, sum());
  config.fp32_partials = fp32_partials();
  TpGroup group(num_ranks(), device(), config);
  unsigned seed = 1;
  for (const std::int64_t tokens : {kMostTokens, std::int64_t{0}, std::int64_t{1}, std::int64_t{7}}) {
    for (const Routing routing : kAllRoutings) {
      if (tokens != 7 && routing != Routing::uniform && routing != Routing::garbage) continue;
      Shape shape = largest;
      shape.num_tokens = tokens;
      shape.seed = seed++;
      shape.accumulate = seed % 2 == 0;
      shape.shared = seed % 3 == 0;
      group.run_and_check(Problem(shape, routing));
      if (HasFailure()) return;
    }
  }
}

std::string sum_and_group_name(const testing::TestParamInfo<SumAndGroup>& info) {
  const auto& [device, sum, ranks, fp32] = info.param;
  return std::string(device.is_host() ? "host_" : "gpu_") + std::string(name_of(sum)) + "_" + std::to_string(ranks) +
         (fp32 ? "_fp32_partials" : "");
}

// Ranks that wait for three others or for seven do so in the same places as those that wait for two.
std::vector<int> group_sizes() { return kIsThreadSanitizer ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 4, 8}; }

INSTANTIATE_TEST_SUITE_P(On, EverySumAndGroup,
                         testing::Combine(testing::Values(Device::host(), Device::cuda(0)), testing::ValuesIn(kSums),
                                          testing::ValuesIn(group_sizes()), testing::Bool()),
                         sum_and_group_name);

TEST_P(TensorParallel, EveryTypeLayoutWeightModeAndIndexIsSummedExactly) {
  constexpr DataType kTypes[] = {DataType::bfloat16, DataType::float16, DataType::float32};
  unsigned seed = 100;
  for (const bool fp32_partials : {false, true}) {
    for (const DataType expert_output : kTypes) {
      for (const DataType output : kTypes) {
        ++seed;
        const Shape shape{.num_tokens = 9,
                          .num_experts = 8,
                          .top_k = 2,
                          .hidden = 520,
                          .combine = {.expert_output = expert_output, .output = output},
                          .index = seed % 2 == 0 ? IndexType::int64 : IndexType::int32,
                          .layout = seed % 3 == 0 ? Layout::batched : Layout::packed,
                          .alignment = seed % 3 == 1 ? 16 : 1,
                          .weight_mode = seed % 4 == 1 ? WeightMode::none : WeightMode::on_combine,
                          .accumulate = seed % 2 == 1,
                          .shared = true,
                          .seed = seed};
        ExchangeConfig config = tp_config(shape, kSums[seed % 4]);
        config.fp32_partials = fp32_partials;
        TpGroup(2, device(), config).run_and_check(Problem(shape, Routing::uniform));
      }
    }
  }
}

TEST_P(TensorParallel, CallsWhosePartsHaveOtherSizesDoNotReadEachOthersLines) {
  Shape narrow{.num_tokens = 6, .num_experts = 8, .top_k = 2, .hidden = 520};
  Shape wide = narrow;
  wide.combine.output = DataType::float32;
  for (const TensorParallelSum sum : kSums) {
    ExchangeConfig config = tp_config(narrow, sum);
    config.combine_types = {narrow.combine, wide.combine};
    TpGroup group(2, device(), config);
    for (unsigned call = 0; call < 12; ++call) {
      Shape& shape = call / 3 % 2 == 0 ? narrow : wide;
      shape.seed = call;
      group.run_and_check(Problem(shape, Routing::uniform));
    }
  }
}

TEST_P(TensorParallel, RowsThatDivideIntoFoursOnlyAreSummedExactly) {
  const Shape shape{.num_tokens = 37,
                    .num_experts = 5,
                    .top_k = 2,
                    .hidden = 516,
                    .payload = {.type = DataType::float32},
                    .combine = {.expert_output = DataType::float32, .output = DataType::float32}};
  for (const TensorParallelSum sum : kSums) {
    TpGroup(3, device(), tp_config(shape, sum)).run_and_check(Problem(shape, Routing::uniform));
  }
}

TEST_P(TensorParallel, PrefillKeepsThisRanksExpertsAndDigestsEveryEntry) {
  const Shape shape{.num_tokens = 400, .num_experts = 20, .top_k = 6, .hidden = 64, .alignment = 8};
  TpGroup group(2, device(), tp_config(shape), on_gpu() ? 1 : 3);
  for (const Routing routing : {Routing::uniform, Routing::garbage, Routing::one_expert}) {
    group.run_and_check(Problem(shape, routing));
  }
}

TEST_P(TensorParallel, RanksWithoutExpertsGetTheSumsOfTheOthers) {
  const Shape packed{.num_tokens = 5, .num_experts = 2, .top_k = 2, .hidden = 64};
  TpGroup(5, device(), tp_config(packed)).run_and_check(Problem(packed, Routing::uniform));
  Shape batched = packed;
  batched.layout = Layout::batched;
  TpGroup(5, device(), tp_config(batched)).run_and_check(Problem(batched, Routing::uniform));
}

TEST_P(TensorParallel, EntriesWithoutRoomAreReportedOnEveryRank) {
  Shape shape{.num_tokens = 12, .num_experts = 4, .top_k = 2, .hidden = 64};
  shape.capacity = 5;
  TpGroup group(2, device(), tp_config(shape));
  group.run_and_check(Problem(shape, Routing::one_expert));
}

TEST_P(TensorParallel, DeviceSideCountsThatChangeLeaveOtherTokensAlone) {
  for (const TensorParallelSum sum : kSums) {
    Shape shape{.num_tokens = 21, .num_experts = 6, .top_k = 2, .hidden = 1032};
    TpGroup group(2, device(), tp_config(shape, sum));
    for (const std::int64_t count : {21, 0, 3, 20, 1}) {
      shape.device_num_tokens = count;
      shape.seed = static_cast<unsigned>(count + 1);
      group.run_and_check(Problem(shape, Routing::uniform));
    }
  }
}

TEST_P(TensorParallel, AutomaticGoesFromPushOverStagingToSeparateLaunches) {
  const Shape largest{.num_tokens = 300, .num_experts = 16, .top_k = 2, .hidden = 14336};
  TpGroup group(2, device(), tp_config(largest));
  const auto plan = [&](std::int64_t tokens) { return group.rank(0).exchange.describe_plan(tokens); };
  EXPECT_NE(plan(1).find("fused push"), std::string::npos) << plan(1);
  EXPECT_NE(plan(128).find("fused pull"), std::string::npos) << plan(128);
  EXPECT_NE(plan(300).find("blocks, then pull"), std::string::npos) << plan(300);
  EXPECT_EQ(group.rank(1).exchange.mode(), Mode::tensor_parallel);
  Shape shape = largest;
  for (const std::int64_t tokens : {1, 19, 300}) {
    if (kIsThreadSanitizer && tokens == 300) break;  // as EverySumAndGroup does with rows of a tenth of the length
    shape.num_tokens = tokens;
    group.run_and_check(Problem(shape, Routing::uniform));
  }
}

TEST_P(TensorParallel, HundredsOfReusedCallsOfChangingSizesNeverMixEpochs) {
  const Shape largest{.num_tokens = 24, .num_experts = 7, .top_k = 2, .hidden = 512};
  TpGroup group(3, device(), tp_config(largest));
  std::mt19937 random(4);
  for (int call = 0; call < 150 && !HasFailure(); ++call) {
    Shape shape = largest;
    shape.num_tokens = static_cast<std::int64_t>(random() % 25);
    shape.seed = static_cast<unsigned>(call);
    group.run_and_check(Problem(shape, kAllRoutings[random() % std::size(kAllRoutings)]));
  }
}

TEST_P(TensorParallel, HalvesGiveWhatWholeCallsGive) {
  const Shape shape{.num_tokens = 6, .num_experts = 8, .top_k = 2, .hidden = 64};
  TpGroup group(2, device(), tp_config(shape));
  const Problem problem(shape, Routing::uniform);
  const TpExpected expected(problem, group.config(), 2);
  for (int r = 0; r < 2; ++r) group.load(r, problem, expected);
  std::vector<CombineTicket> tickets;
  for (int r = 0; r < 2; ++r) {
    Exchange& exchange = group.rank(r).exchange;
    const Stream& stream = group.rank(r).stream;
    const ExpertBatch batch =
        exchange.dispatch_receive(exchange.dispatch_send(group.dispatch_args(r, problem), stream), stream);
    tickets.push_back(exchange.combine_send(group.combine_args(r, problem, batch), stream));
  }
  for (int r = 0; r < 2; ++r) {
    group.rank(r).exchange.combine_receive(std::move(tickets[static_cast<std::size_t>(r)]), group.rank(r).stream);
    group.expect_output(r, problem, expected);
  }
}

MOELINK_TEST_ON_DEVICES(TensorParallel);

}  // namespace
}  // namespace moelink::test
