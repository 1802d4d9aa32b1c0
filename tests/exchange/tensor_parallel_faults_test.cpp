// Tensor parallel when ranks disagree, stay away, or replay graphs.
#include "exchange/tensor_parallel_group.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

constexpr Shape kShape{.num_tokens = 6, .num_experts = 8, .top_k = 2, .hidden = 64};

class TensorParallelFaults : public DeviceTest {
 protected:
  /// Runs one call in which rank 1 has other inputs, and expects every rank to be told so.
  static void expect_inputs_differ(const std::function<void(TpGroup&, DispatchArgs&)>& change,
                                   const std::function<void(CombineArgs&)>& change_combine = {},
                                   TensorParallelSum sum = TensorParallelSum::automatic) {
    TpGroup group(2, device(), tp_config(kShape, sum));
    const Problem problem(kShape, Routing::uniform);
    const TpExpected expected(problem, group.config(), 2);
    std::vector<ExpertBatch> batches;
    std::vector<DispatchArgs> args;
    for (int r = 0; r < 2; ++r) {
      group.load(r, problem, expected);
      args.push_back(group.dispatch_args(r, problem));
    }
    change(group, args[1]);
    for (int r = 0; r < 2; ++r) {
      batches.push_back(group.rank(r).exchange.dispatch(args[static_cast<std::size_t>(r)], group.rank(r).stream));
    }
    for (int r = 0; r < 2; ++r) {
      CombineArgs combine = group.combine_args(r, problem, batches[static_cast<std::size_t>(r)]);
      combine.output.rows = args[static_cast<std::size_t>(r)].tokens.rows;
      if (r == 1 && change_combine) change_combine(combine);
      group.rank(r).exchange.combine(combine, group.rank(r).stream);
    }
    expect_told_of_rank_1(group);
  }

  /// Every rank of two.
  static void expect_told_of_rank_1(TpGroup& group) {
    for (int r = 0; r < 2; ++r) group.rank(r).stream.synchronize();
    for (int r = 0; r < 2; ++r) {
      try {
        group.rank(r).exchange.check();
        ADD_FAILURE() << "rank " << r << " was told nothing";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
        EXPECT_NE(std::string(error.what()).find("different inputs"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
      }
    }
  }
};

TEST_P(TensorParallelFaults, IdsThatDifferAreAFaultThatSaysSo) {
  expect_inputs_differ([](TpGroup& group, DispatchArgs&) {
    const std::int32_t other = 3;
    auto* ids = group.rank(1).ids.as<std::int32_t>();
    const auto before = download<std::int32_t>(ids, 1, group.rank(1).stream);
    const std::int32_t changed = before[0] == other ? other + 1 : other;
    copy_bytes(ids, &changed, sizeof(changed), group.rank(1).stream);
    group.rank(1).stream.synchronize();
  });
}

TEST_P(TensorParallelFaults, WeightsThatDifferAreAFaultThatSaysSo) {
  expect_inputs_differ([](TpGroup& group, DispatchArgs&) {
    const float other = 17.0F;
    copy_bytes(group.rank(1).weights.as<float>() + 11, &other, sizeof(other), group.rank(1).stream);
    group.rank(1).stream.synchronize();
  });
}

TEST_P(TensorParallelFaults, TokenCountsThatDifferEndWaitsForBlocksThatNeverRun) {
  expect_inputs_differ([](TpGroup&, DispatchArgs& args) { args.tokens.rows = 0; });
}

// Rank 0's output is what is added: nobody would see what rank 1 asked for, or did not.
TEST_P(TensorParallelFaults, AccumulatingOnSomeRanksIsAFaultThatSaysSo) {
  for (const TensorParallelSum sum :
       {TensorParallelSum::push, TensorParallelSum::pull, TensorParallelSum::two_shot, TensorParallelSum::separate}) {
    expect_inputs_differ([](TpGroup&, DispatchArgs&) {}, [](CombineArgs& args) { args.accumulate = !args.accumulate; },
                         sum);
  }
}

// Parts in fp32 are alike whatever they become; shards of two-shot are not.
TEST_P(TensorParallelFaults, OutputsOfTypesThatDifferAreAFaultThatSaysSo) {
  Shape shape = kShape;
  for (const bool fp32_partials : {false, true}) {
    ExchangeConfig config = tp_config(shape, TensorParallelSum::two_shot);
    config.fp32_partials = fp32_partials;
    config.combine_types = {{.output = DataType::bfloat16}, {.output = DataType::float32}};
    TpGroup group(2, device(), config);
    std::vector<ExpertBatch> batches;
    for (int r = 0; r < 2; ++r) {
      shape.combine = config.combine_types[static_cast<std::size_t>(r)];
      const Problem problem(shape, Routing::uniform);
      group.load(r, problem, TpExpected(problem, group.config(), 2));
      batches.push_back(group.rank(r).exchange.dispatch(group.dispatch_args(r, problem), group.rank(r).stream));
    }
    for (int r = 0; r < 2; ++r) {
      shape.combine = config.combine_types[static_cast<std::size_t>(r)];
      const Problem problem(shape, Routing::uniform);
      group.rank(r).exchange.combine(group.combine_args(r, problem, batches[static_cast<std::size_t>(r)]),
                                     group.rank(r).stream);
    }
    expect_told_of_rank_1(group);
  }
}

TEST_P(TensorParallelFaults, RanksWithOtherConfigurationsAreNamedWithFieldAndValues) {
  const auto communicators = Communicator::in_process(3, TpGroup::in_process_on(device()));
  on_every_rank(communicators, [](const Communicator& communicator) {
    ExchangeConfig config = tp_config(kShape);
    config.mode = Mode::tensor_parallel;
    if (communicator.rank() == 2) config.max_tokens = 7;
    try {
      const Exchange exchange(communicator, config);
      ADD_FAILURE() << "rank " << communicator.rank() << " was constructed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      for (const char* word : {"rank 2", "max_tokens", "7", "6"}) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    }
  });
}

TEST_P(TensorParallelFaults, RankThatNeverCombinesEndsTheOthersWithinTheDeadline) {
  const auto communicators =
      Communicator::in_process(2, TpGroup::in_process_on(device(), std::chrono::milliseconds(300)));
  ExchangeConfig config = tp_config(kShape);
  config.replicated_inputs = true;  // what automatic goes by
  std::vector<Exchange> exchanges =
      on_every_rank(communicators, [&](const Communicator& communicator) { return Exchange(communicator, config); });
  EXPECT_EQ(exchanges[0].mode(), Mode::tensor_parallel);
  const Stream stream(device(), {.num_threads = 1});
  const Buffer tokens(device(), 6 * 64 * 2);
  const Buffer output(device(), 6 * 64 * 2);
  const Buffer rows(device(), 12 * 64 * 2);
  const std::vector<std::int32_t> ids(12, 1);
  const Buffer ids_buffer = upload(ids, stream);
  fill_bytes(rows.data(), 0, rows.size_bytes(), stream);
  (void)exchanges[0].dispatch({.tokens = {tokens.data(), DataType::bfloat16, 6, 64},
                               .expert_ids = {ids_buffer.data(), IndexType::int32},
                               .weight_mode = WeightMode::none},
                              stream);
  exchanges[0].combine({.expert_output = {rows.data(), DataType::bfloat16, 12, 64},
                        .output = {output.data(), DataType::bfloat16, 6, 64}},
                       stream);
  stream.synchronize();
  try {
    exchanges[0].check();
    ADD_FAILURE() << "no fault";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1 in tp_"), std::string::npos) << error.what();
  }
  EXPECT_THROW(exchanges[1].check(), Error);
}

MOELINK_TEST_ON_DEVICES(TensorParallelFaults);

class TensorParallelGraphs : public testing::TestWithParam<TensorParallelSum> {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  }
};

TEST_P(TensorParallelGraphs, CountsThatChangeOnTheDeviceBetweenReplaysAreFollowed) {
  Shape shape{.num_tokens = 40, .num_experts = 8, .top_k = 2, .hidden = 1024, .device_num_tokens = 40};
  TpGroup group(2, Device::cuda(0), tp_config(shape, GetParam()));
  std::vector<Graph> graphs;
  for (int r = 0; r < 2; ++r) {
    const Problem problem(shape, Routing::uniform);
    graphs.push_back(Graph::record(group.rank(r).stream, [&] {
      const ExpertBatch batch = group.rank(r).exchange.dispatch(group.dispatch_args(r, problem), group.rank(r).stream);
      group.rank(r).exchange.combine(group.combine_args(r, problem, batch), group.rank(r).stream);
    }));
  }
  const std::int64_t counts[] = {40, 0, 1, 39, 7};
  for (int replay = 0; replay < 101 && !HasFailure(); ++replay) {
    shape.device_num_tokens = counts[replay % 5];
    shape.seed = static_cast<unsigned>(replay);
    const Problem problem(shape, Routing::uniform);
    const TpExpected expected(problem, group.config(), 2);
    for (int r = 0; r < 2; ++r) group.load(r, problem, expected);
    for (int r = 0; r < 2; ++r) graphs[static_cast<std::size_t>(r)].launch(group.rank(r).stream);
    for (int r = 0; r < 2; ++r) group.expect_output(r, problem, expected);
  }
  for (int r = 0; r < 2; ++r) EXPECT_NO_THROW(group.rank(r).exchange.check());
}

INSTANTIATE_TEST_SUITE_P(gpu, TensorParallelGraphs,
                         testing::Values(TensorParallelSum::push, TensorParallelSum::pull, TensorParallelSum::two_shot,
                                         TensorParallelSum::separate),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace moelink::test
