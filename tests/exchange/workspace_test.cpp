// Exchanges that share one workspace, and Exchanges that do not.
#include "exchange/runner.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

class WorkspaceSharing : public DeviceTest {
 protected:
  [[nodiscard]] static Communicator communicator() { return Communicator::single(device()); }
  static ExchangeConfig prefill() { return {.num_experts = 16, .top_k = 2, .hidden = 64, .max_tokens = 600}; }
  static ExchangeConfig decode() { return {.num_experts = 16, .top_k = 2, .hidden = 64, .max_tokens = 8}; }
  static Problem problem(std::int64_t tokens) {
    return Problem({.num_tokens = tokens, .num_experts = 16, .top_k = 2, .hidden = 64, .capacity = 1200},
                   Routing::uniform);
  }
};

TEST_P(WorkspaceSharing, TakesNoMoreThanTheLargestAndServesInTurn) {
  const Workspace shared(communicator(), {prefill(), decode()});
  std::int64_t device_bytes = 0;
  for (const MemoryItem& item : Exchange::memory(communicator(), prefill()).items) {
    device_bytes += item.where == (on_gpu() ? "device" : "host") ? item.bytes : 0;
  }
  EXPECT_EQ(shared.size_bytes(), device_bytes);

  Stream stream(device());
  Runner large(problem(600), Exchange(communicator(), prefill(), shared), stream);
  Runner small(problem(8), Exchange(communicator(), decode(), shared), stream);
  for (int round = 0; round < 3; ++round) {
    const Problem many = problem(600);
    const Problem few = problem(8);
    expect_same(large.run(Expected(many)), many, Expected(many));
    expect_same(small.run(Expected(few)), few, Expected(few));
  }
}

TEST_P(WorkspaceSharing, RefusesExchangesThatAreInFlightTogether) {
  const Workspace shared(communicator(), {prefill(), decode()});
  Stream stream(device());
  Runner large(problem(600), Exchange(communicator(), prefill(), shared), stream);
  Runner small(problem(8), Exchange(communicator(), decode(), shared), stream);
  const ExpertBatch batch = large.exchange().dispatch(large.dispatch_args(), stream);
  const auto expect_out_of_order = [](auto call) {
    try {
      call();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_order) << error.what();
      EXPECT_NE(std::string(error.what()).find("shares this workspace"), std::string::npos) << error.what();
    }
  };
  expect_out_of_order([&] { (void)small.exchange().dispatch(small.dispatch_args(), stream); });
  large.exchange().combine(large.combine_args(batch), stream);
  (void)small.run(Expected(problem(8)));
  DispatchArgs reuse = large.dispatch_args();
  reuse.reuse_routing = true;  // small has routed since
  expect_out_of_order([&] { (void)large.exchange().dispatch(reuse, stream); });
}

TEST_P(WorkspaceSharing, AnExchangeThatEndsInFlightDoesNotBlockTheOthers) {
  const Workspace shared(communicator(), {prefill(), decode()});
  Stream stream(device());
  Runner small(problem(8), Exchange(communicator(), decode(), shared), stream);
  {
    Runner large(problem(600), Exchange(communicator(), prefill(), shared), stream);
    const ExpertBatch batch = large.exchange().dispatch(large.dispatch_args(), stream);
    large.exchange().combine(large.combine_args(batch), stream);
    stream.synchronize();
  }
  const Problem few = problem(8);
  expect_same(small.run(Expected(few)), few, Expected(few));
}

TEST_P(WorkspaceSharing, TooSmallAWorkspaceIsRefusedWithBothSizes) {
  const Workspace small(communicator(), {decode()});
  try {
    const Exchange exchange(communicator(), prefill(), small);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::capacity);
    EXPECT_NE(std::string(error.what()).find(std::to_string(small.size_bytes())), std::string::npos) << error.what();
  }
  EXPECT_THROW(Workspace(communicator(), {}), Error);
}

TEST_P(WorkspaceSharing, TwoMicroBatchesWithAnExchangeEachDoNotDisturbOneAnother) {
  Stream stream(device());
  const Problem a = problem(600);
  const Problem b = problem(300);
  const Expected expected_a(a);
  const Expected expected_b(b);
  Runner first(a, Exchange(communicator(), prefill()), stream);
  Runner second(b, Exchange(communicator(), prefill()), stream);
  for (int round = 0; round < 3; ++round) {
    const ExpertBatch batch_a = first.exchange().dispatch(first.dispatch_args(), stream);
    const ExpertBatch batch_b = second.exchange().dispatch(second.dispatch_args(), stream);
    first.load_expert_output(expected_a);
    second.load_expert_output(expected_b);
    first.exchange().combine(first.combine_args(batch_a), stream);
    second.exchange().combine(second.combine_args(batch_b), stream);
    expect_same(first.read(batch_a), a, expected_a);
    expect_same(second.read(batch_b), b, expected_b);
  }
}

MOELINK_TEST_ON_DEVICES(WorkspaceSharing);

}  // namespace
}  // namespace moelink::test
