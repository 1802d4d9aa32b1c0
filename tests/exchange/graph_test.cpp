// Calls captured in CUDA graphs: replayed any number of times, with inputs that change, and caught when out of order.
#include "exchange/runner.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

class ExchangeGraph : public testing::Test {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  }
};

/// Problems of one shape and different contents.
Problem variant(const Shape& base, unsigned seed) {
  Shape shape = base;
  shape.seed = seed;
  return Problem(shape, kAllRoutings[seed % std::size(kAllRoutings)]);
}

void replay_with_changing_inputs(const Shape& shape, int replays) {
  const Stream stream(Device::cuda(0));
  const Problem first = variant(shape, 0);
  Runner runner(first, stream);
  ExpertBatch batch;
  // The very first call of this Exchange is the captured one: nothing may be lazy after construction.
  const Graph graph = Graph::record(stream, [&] {
    batch = runner.exchange().dispatch(runner.dispatch_args(), stream);
    runner.exchange().combine(runner.combine_args(batch), stream);
  });
  DataErrors so_far;
  for (int i = 0; i < replays && !testing::Test::HasFailure(); ++i) {
    const Problem problem = variant(shape, static_cast<unsigned>(i));
    const Expected expected(problem);
    runner.load(problem);
    runner.load_expert_output(expected);
    graph.launch(stream);
    Outcome outcome = runner.read(batch);
    const DataErrors total = outcome.errors;
    outcome.errors = {total.ids_out_of_range - so_far.ids_out_of_range,
                      total.rows_over_capacity - so_far.rows_over_capacity,
                      total.token_counts_clamped - so_far.token_counts_clamped};
    so_far = total;
    SCOPED_TRACE(testing::Message() << "replay " << i);
    expect_same(outcome, problem, expected);
  }
}

TEST_F(ExchangeGraph, FirstCallCapturedThenReplayedWithChangingInputs) {
  for (const std::int64_t tokens : {7, 129, 1000}) {
    replay_with_changing_inputs(
        {.num_tokens = tokens, .num_experts = 32, .top_k = 4, .hidden = 64, .alignment = 8, .zero_pads = true}, 15);
    replay_with_changing_inputs({.num_tokens = tokens,
                                 .num_experts = 32,
                                 .top_k = 4,
                                 .hidden = 64,
                                 .index = IndexType::int64,
                                 .layout = Layout::batched},
                                15);
  }
}

TEST_F(ExchangeGraph, ThousandReplaysOfAnOddNumberOfCallsGiveTheSameBits) {
  for (const std::int64_t tokens : {33, 700}) {
    const Stream stream(Device::cuda(0));
    const Problem problem({.num_tokens = tokens, .num_experts = 32, .top_k = 4, .hidden = 64}, Routing::zipf);
    const Expected expected(problem);
    Runner runner(problem, stream);
    runner.load_expert_output(expected);
    ExpertBatch batch;
    const Graph graph = Graph::record(stream, [&] {
      for (int call = 0; call < 3; ++call) {
        batch = runner.exchange().dispatch(runner.dispatch_args(), stream);
        runner.exchange().combine(runner.combine_args(batch), stream);
      }
    });
    for (int i = 0; i < 1000; ++i) graph.launch(stream);
    expect_same(runner.read(batch), problem, expected);
    EXPECT_NO_THROW(runner.exchange().check());
    // A direct call after the replays goes on where they stopped.
    expect_same(runner.run(expected), problem, expected);
  }
}

TEST_F(ExchangeGraph, ReplaysOutOfOrderAreReportedAsAFault) {
  const Stream stream(Device::cuda(0));
  const Problem problem({.num_tokens = 20, .num_experts = 8, .top_k = 2, .hidden = 64}, Routing::uniform);
  Runner runner(problem, stream);
  ExpertBatch batch;
  const Graph dispatch =
      Graph::record(stream, [&] { batch = runner.exchange().dispatch(runner.dispatch_args(), stream); });
  const Graph combine = Graph::record(stream, [&] { runner.exchange().combine(runner.combine_args(batch), stream); });
  dispatch.launch(stream);
  combine.launch(stream);
  stream.synchronize();
  EXPECT_NO_THROW(runner.exchange().check());
  dispatch.launch(stream);
  dispatch.launch(stream);
  stream.synchronize();
  for (int again = 0; again < 2; ++again) {  // a fault is reported again and again
    try {
      runner.exchange().check();
      ADD_FAILURE() << "not reported";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_order) << error.what();
    }
  }
  EXPECT_THROW((void)runner.exchange().dispatch(runner.dispatch_args(), stream), Error);
}

}  // namespace
}  // namespace moelink::test
