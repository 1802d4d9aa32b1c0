// Dispatch and combine in halves: the only order is dispatch_send, dispatch_receive, combine_send, combine_receive.
#include "exchange/runner.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

class Halves : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    stream_.emplace(device());
    problem_.emplace(Shape{.num_tokens = 6, .num_experts = 8, .top_k = 2, .hidden = 32, .shared = true},
                     Routing::uniform);
    expected_.emplace(*problem_);
    runner_.emplace(*problem_, *stream_);
  }
  Exchange& exchange() { return runner_->exchange(); }
  DispatchTicket send_dispatch() { return exchange().dispatch_send(runner_->dispatch_args(), *stream_); }

  template <class Call>
  static void expect_out_of_order(Call call, const char* words) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_order) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }

  std::optional<Stream> stream_;
  std::optional<Problem> problem_;
  std::optional<Expected> expected_;
  std::optional<Runner> runner_;
};

TEST_P(Halves, GiveWhatWholeCallsGive) {
  for (int call = 0; call < 3; ++call) {
    const ExpertBatch batch = exchange().dispatch_receive(send_dispatch(), *stream_);
    runner_->load_expert_output(*expected_);
    CombineTicket ticket = exchange().combine_send(runner_->combine_args(batch), *stream_);
    exchange().combine_receive(std::move(ticket), *stream_);
    expect_same(runner_->read(batch), *problem_, *expected_);
    expect_same(runner_->run(*expected_), *problem_, *expected_);
  }
}

TEST_P(Halves, OutOfTheirOrderAreRefusedAndTheRightOneThenWorks) {
  DispatchTicket dispatch = send_dispatch();
  CombineArgs combine_args = runner_->combine_args({});
  expect_out_of_order([&] { (void)send_dispatch(); }, "dispatch was called twice");
  expect_out_of_order([&] { exchange().combine(combine_args, *stream_); }, "before dispatch_receive");
  expect_out_of_order([&] { (void)exchange().host_counts(*stream_); }, "receive");
  const ExpertBatch batch = exchange().dispatch_receive(std::move(dispatch), *stream_);
  combine_args = runner_->combine_args(batch);
  runner_->load_expert_output(*expected_);
  CombineTicket combine = exchange().combine_send(combine_args, *stream_);
  expect_out_of_order([&] { (void)send_dispatch(); }, "before combine_receive");
  expect_out_of_order([&] { exchange().combine(combine_args, *stream_); }, "before combine_receive");
  exchange().combine_receive(std::move(combine), *stream_);
  expect_same(runner_->read(batch), *problem_, *expected_);
  expect_out_of_order([&] { exchange().combine(combine_args, *stream_); }, "without a dispatch");
}

TEST_P(Halves, TicketsAreReceivedOnceAndOnlyTheLast) {
  DispatchTicket first = send_dispatch();
  DispatchTicket kept = std::move(first);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the point
  expect_out_of_order([&] { (void)exchange().dispatch_receive(std::move(first), *stream_); }, "moved from");
  Runner other(*problem_, *stream_);
  DispatchTicket of_other = other.exchange().dispatch_send(other.dispatch_args(), *stream_);
  (void)other.exchange().dispatch_receive(std::move(of_other), *stream_);
  CombineTicket late = other.exchange().combine_send(other.combine_args({}), *stream_);
  other.exchange().combine_receive(std::move(late), *stream_);
  DispatchTicket second_of_other = other.exchange().dispatch_send(other.dispatch_args(), *stream_);
  expect_out_of_order([&] { (void)exchange().dispatch_receive(std::move(second_of_other), *stream_); }, "of send 3");
  (void)exchange().dispatch_receive(std::move(kept), *stream_);
  stream_->synchronize();  // before the memory of both goes
}

MOELINK_TEST_ON_DEVICES(Halves);

}  // namespace
}  // namespace moelink::test
