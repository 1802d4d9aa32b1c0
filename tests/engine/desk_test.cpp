// Requests from any thread, for engines on several ranks; and what the ranks tell each other.
#include "engine/desk/desk.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/expect_error.hpp"
#include "engine/desk/worker.hpp"
#include "engine/generation.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::data_folder;
using testing::Expected;

const char* const kModel = "tiny-qwen3-moe";
constexpr std::int64_t kNumTokens = 6;  // of each request: sanitizers are slow

const std::vector<Expected>& cases() {
  static const std::vector<Expected> all = [] {
    std::vector<Expected> found = testing::expected_of(kModel);
    std::erase_if(found, [](const Expected& c) { return c.prompt.size() > 20; });
    return found;
  }();
  return all;
}

Request request_of(const Expected& expected, std::int64_t num_tokens = kNumTokens) {
  return {.prompt = expected.prompt, .max_tokens = num_tokens, .ignore_end_tokens = true};
}

struct Outcome {
  std::vector<Token> tokens;
  Finish finish;
};
Outcome wait_for_end(OpenRequest& request) {
  Outcome outcome;
  while (true) {
    Reply::News news = request.wait(std::chrono::seconds(1));
    outcome.tokens.insert(outcome.tokens.end(), news.tokens.begin(), news.tokens.end());
    if (news.finish) {
      outcome.finish = *news.finish;
      return outcome;
    }
  }
}

/// Ranks of this process, a desk on the first of them; `clients` runs beside them, then all end.
template <class Clients>
void with_desk(int num_ranks, Parallelism parallelism, const DeskOptions& options, Clients&& clients) {
  const EngineOptions engine_options{
      .model = {.parallelism = parallelism, .limits = {.max_rows = 64, .num_pages = 256, .page_size = 8}},
      .num_threads = 1};
  on_every_rank(Communicator::in_process(num_ranks), [&](const Communicator& communicator) {
    Engine engine(communicator, data_folder(kModel), engine_options);
    if (communicator.rank() != 0) {
      Worker(communicator, engine, parallelism, nullptr).run();
      return;
    }
    Desk desk(engine, options);
    std::thread beside([&] {
      clients(desk);
      desk.stop();
    });
    Worker(communicator, engine, parallelism, &desk).run();
    beside.join();
  });
}

class DeskRanks : public ::testing::TestWithParam<Parallelism> {};

TEST_P(DeskRanks, ThreadsThatAskTogetherEachGetTheirTokens) {
  constexpr int kRanks = 2;
  const int num_with_requests = GetParam() == Parallelism::data ? kRanks : 1;
  with_desk(kRanks, GetParam(), {.num_ranks = num_with_requests}, [&](Desk& desk) {
    std::vector<std::thread> clients;
    for (const Expected& expected : cases()) {
      clients.emplace_back([&] {
        const auto request = desk.submit(request_of(expected));
        const Outcome outcome = wait_for_end(*request);
        EXPECT_EQ(outcome.finish.reason, FinishReason::length) << outcome.finish.error;
        EXPECT_EQ(outcome.tokens, std::vector<Token>(expected.greedy.begin(), expected.greedy.begin() + kNumTokens));
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(desk.wait_until_empty({}));
  });
}

TEST_P(DeskRanks, WhoeverLetsGoCancelsTheRequestAndNoOther) {
  constexpr int kRanks = 2;
  const int num_with_requests = GetParam() == Parallelism::data ? kRanks : 1;
  with_desk(kRanks, GetParam(), {.num_ranks = num_with_requests}, [&](Desk& desk) {
    const auto kept = desk.submit(request_of(cases()[0]));
    {
      const auto left = desk.submit(request_of(cases()[1], 500));
      EXPECT_FALSE(left->wait(std::chrono::seconds(20)).tokens.empty());
    }
    EXPECT_EQ(wait_for_end(*kept).tokens.size(), kNumTokens);
    const std::string cancelled = "moelink_requests_finished_total{reason=\"cancelled\"} 1\n";
    while (desk.metrics().find(cancelled) == std::string::npos) std::this_thread::yield();
  });
}

INSTANTIATE_TEST_SUITE_P(Parallel, DeskRanks, ::testing::Values(Parallelism::data, Parallelism::tensor),
                         [](const auto& param) { return param.param == Parallelism::data ? "data" : "tensor"; });

TEST(Desk, MoreThanMayWaitAndRequestsAfterCloseAreTurnedAway) {
  with_desk(1, Parallelism::data, {.max_running = 1, .max_waiting = 1}, [](Desk& desk) {
    const auto runs = desk.submit(request_of(cases()[0], 500));
    const auto waits = desk.submit(request_of(cases()[0], 500));
    const auto refused_for = [&](NotNow::Reason reason) {
      try {
        (void)desk.submit(request_of(cases()[1]));
        ADD_FAILURE() << "was taken";
      } catch (const NotNow& not_now) {
        EXPECT_EQ(not_now.reason(), reason) << not_now.what();
      }
    };
    refused_for(NotNow::Reason::too_many);
    expect_error(ErrorCode::invalid_argument, {"empty"}, [&] { (void)desk.submit({}); });
    desk.close("enough");
    refused_for(NotNow::Reason::closed);
    EXPECT_FALSE(desk.wait_until_empty({}));
    desk.stop();
    const Outcome ended = wait_for_end(*waits);
    EXPECT_EQ(ended.finish.reason, FinishReason::cancelled);
    EXPECT_EQ(ended.finish.error, "enough");
  });
}

TEST(Desk, APromptThatNoMessageCanCarryIsRefused) {
  with_desk(1, Parallelism::data, {}, [](Desk& desk) {
    Request request{.prompt = {5}, .max_tokens = 1};
    request.stop_tokens.resize(kMaxOrderBytes / sizeof(Token));
    expect_error(ErrorCode::capacity, {"bytes"}, [&] { (void)desk.submit(request); });
  });
}

TEST(Desk, OrdersThatDoNotFitOneMessageGoInTheNext) {
  const auto alone = Communicator::single(Device::host());
  Engine engine(alone, data_folder(kModel), {.model = {.limits = {.max_rows = 64, .num_pages = 256, .page_size = 8}}});
  Desk desk(engine, {});
  Request request{.prompt = {5}, .max_tokens = 1};
  request.stop_tokens.resize(kMaxOrderBytes / sizeof(Token) / 3);  // with the rest of an order more than a third
  std::vector<std::unique_ptr<OpenRequest>> open;
  for (int i = 0; i < 3; ++i) open.push_back(desk.submit(request));
  for (const std::size_t expected : {2U, 1U, 0U}) {
    StepMessage message;
    desk.take_orders(message);
    EXPECT_EQ(message.orders.size(), expected);
    EXPECT_LE(bytes_of(message).size(), std::size_t{1} << 20);
  }
}

StepMessage full_message() {
  return {.report = {.has_work = true,
                     .stats = {.num_steps = 1,
                               .num_rows = 2,
                               .num_preempted = 3,
                               .step_us = 4,
                               .measured_us = 4.5,
                               .dispatch_us = 5,
                               .combine_us = 6},
                     .load = {.num_running = 7, .num_waiting = 8, .num_free_pages = 9},
                     .num_pages = 10},
          .stop = true,
          .orders = {{.ticket = 11,
                      .rank = 2,
                      .request = {.prompt = {1, 2, 3},
                                  .max_tokens = 12,
                                  .sampling = {.temperature = 0.5, .top_k = 13, .top_p = 0.25, .seed = 14},
                                  .stop_tokens = {15},
                                  .ignore_end_tokens = true}},
                     {.kind = Order::Kind::cancel, .ticket = 16}},
          .events = {{.ticket = 17, .token = 18},
                     {.kind = Event::Kind::finish,
                      .ticket = 19,
                      .finish = {.reason = FinishReason::failed,
                                 .error = "why",
                                 .num_tokens = 20,
                                 .num_reused_tokens = 21,
                                 .time_to_first_token_us = 22,
                                 .time_per_token_us = 23}}}};
}

TEST(StepMessage, WhatIsWrittenIsRead) {
  const StepMessage read = message_of(bytes_of(full_message()));
  EXPECT_TRUE(read.report.has_work);
  EXPECT_EQ(read.report.stats.num_preempted, 3);
  EXPECT_EQ(read.report.stats.measured_us, 4.5);
  EXPECT_EQ(read.report.stats.combine_us, 6);
  EXPECT_EQ(read.report.load.num_free_pages, 9);
  EXPECT_EQ(read.report.num_pages, 10);
  EXPECT_TRUE(read.stop);
  ASSERT_EQ(read.orders.size(), 2U);
  const Order& order = read.orders[0];
  EXPECT_EQ(order.ticket, 11U);
  EXPECT_EQ(order.rank, 2);
  EXPECT_EQ(order.request.prompt, (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(order.request.max_tokens, 12);
  EXPECT_EQ(order.request.sampling.temperature, 0.5);
  EXPECT_EQ(order.request.sampling.top_k, 13);
  EXPECT_EQ(order.request.sampling.top_p, 0.25);
  EXPECT_EQ(order.request.sampling.seed, 14U);
  EXPECT_EQ(order.request.stop_tokens, std::vector<Token>{15});
  EXPECT_TRUE(order.request.ignore_end_tokens);
  EXPECT_EQ(read.orders[1].kind, Order::Kind::cancel);
  EXPECT_EQ(read.orders[1].ticket, 16U);
  EXPECT_TRUE(read.orders[1].is_for(5));
  ASSERT_EQ(read.events.size(), 2U);
  EXPECT_EQ(read.events[0].token, 18);
  EXPECT_EQ(read.events[1].finish.error, "why");
  EXPECT_EQ(read.events[1].finish.time_per_token_us, 23);
  EXPECT_EQ(bytes_of(read), bytes_of(full_message()));
}

TEST(StepMessage, BytesThatEndEarlyOrGoOnAreNoMessage) {
  std::vector<std::byte> bytes = bytes_of(full_message());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    expect_error(ErrorCode::peer, {"no message"}, [&] { (void)message_of(std::span(bytes).first(size)); });
  }
  bytes.push_back({});
  expect_error(ErrorCode::peer, {"no message"}, [&] { (void)message_of(bytes); });
}

TEST(StepMessage, EventsThatDoNotFitOneMessageGoInTheNext) {
  std::vector<Event> waiting;
  constexpr Ticket kNumEvents = 5000;
  for (Ticket ticket = 0; ticket < kNumEvents; ++ticket) {
    if (ticket % 2 == 0) {
      waiting.push_back({.kind = Event::Kind::token, .ticket = ticket, .token = 3});
    } else {
      waiting.push_back({.kind = Event::Kind::finish,
                         .ticket = ticket,
                         .finish = {.reason = FinishReason::failed, .error = std::string(2000, 'e')}});
    }
  }
  Ticket next = 0;
  int num_messages = 0;
  for (; !waiting.empty(); ++num_messages) {
    ASSERT_LT(num_messages, 10);
    const StepMessage message{.events = take_events(waiting, kMaxOrderBytes)};
    EXPECT_LE(bytes_of(message).size(), std::size_t{1} << 20);
    for (const Event& event : message.events) {
      EXPECT_EQ(event.ticket, next++);
    }
  }
  EXPECT_EQ(next, kNumEvents);
  EXPECT_GT(num_messages, 1);
}

TEST(StepMessage, AnOrderTakesNoMoreBytesThanItIsCountedFor) {
  StepMessage message;
  const std::size_t without = bytes_of(message).size();
  message.orders = full_message().orders;
  std::size_t counted = 0;
  for (const Order& order : message.orders) counted += size_of(order);
  EXPECT_LE(bytes_of(message).size() - without, counted);
}

TEST(Histogram, BucketsAreCumulative) {
  constexpr std::array kBounds = {1.0, 2.0};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.add(value);
  std::string out;
  histogram.print("x", "help", out);
  EXPECT_EQ(out,
            "# HELP x help\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\nx_bucket{le=\"2\"} 3\nx_bucket{le=\"+Inf\"} 4\n"
            "x_sum 12\nx_count 4\n");
}

}  // namespace
}  // namespace moelink::engine
