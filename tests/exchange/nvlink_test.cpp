// Exchanges over ranks in one process, through the public interface: every shape, equal to the reference bit for bit.
#include <gtest/gtest.h>

#include <random>

#include "exchange/ranks_case.hpp"
#include "moelink/error.hpp"
#include "support/fewer.hpp"

namespace moelink::test {
namespace {

/// Ranks of one node, and the same ranks taken for nodes of one or two, where puts carry what crosses nodes (mode p2p):
/// the same results, bit for bit.
struct Where {
  Device device;
  int ranks_per_node;  ///< 0: one node
};
std::ostream& operator<<(std::ostream& out, const Where& where) {
  return out << (where.device.is_host() ? "host" : "gpu")
             << (where.ranks_per_node == 0   ? ""
                 : where.ranks_per_node == 1 ? "_nodes_of_one"
                                             : "_nodes_of_two");
}

class RanksExchange : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    if (on_gpu() && Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  }
  [[nodiscard]] static Device device() { return GetParam().device; }
  [[nodiscard]] static bool on_gpu() { return device().is_cuda(); }
  [[nodiscard]] static bool on_one_node() { return GetParam().ranks_per_node == 0; }
  /// Groups on several nodes are refused: RanksOfSeveralNodes.HaveNoGroups.
  [[nodiscard]] static int largest_group() { return on_one_node() ? 2 : 1; }
  /// The shape on this test's nodes.
  [[nodiscard]] static RanksShape placed(RanksShape shape) {
    shape.ranks_per_node = GetParam().ranks_per_node;
    return shape;
  }
  static void check(const RanksShape& shape, const std::vector<RanksCall>& calls, int host_threads = 1,
                    bool split = false) {
    check_calls(device(), placed(shape), calls, host_threads, split);
  }
};
INSTANTIATE_TEST_SUITE_P(On, RanksExchange,
                         testing::Values(Where{Device::host(), 0}, Where{Device::host(), 1}, Where{Device::host(), 2},
                                         Where{Device::cuda(0), 0}, Where{Device::cuda(0), 1},
                                         Where{Device::cuda(0), 2}),
                         testing::PrintToStringParamName());

std::vector<RanksCall> calls_of(const RanksShape& shape, std::initializer_list<Routes> routes, unsigned seed) {
  std::vector<RanksCall> calls;
  for (const Routes kind : routes) calls.emplace_back(shape, kind, seed++);
  return calls;
}

TEST_P(RanksExchange, EveryKindOfRoutingArrivesAndComesHome) {
  for (const int num_ranks : {2, 3, 4, 8}) {
    const RanksShape shape{.num_ranks = num_ranks, .num_experts = 11, .top_k = 3, .max_tokens = 9};
    std::vector<RanksCall> calls;
    for (const Routes routes : kAllRoutes) calls.emplace_back(shape, routes, 7 + calls.size());
    check(shape, calls, 2);
  }
}

TEST_P(RanksExchange, GroupsSendOnceAndAllMembersGetTheResult) {
  if (!on_one_node()) GTEST_SKIP() << "groups on several nodes are refused: RanksOfSeveralNodes.HaveNoGroups";
  for (const auto& [num_ranks, tp_size] : {std::pair{2, 2}, {4, 2}, {6, 3}, {8, 4}}) {
    const RanksShape shape{.num_ranks = num_ranks,
                           .tp_size = tp_size,
                           .num_experts = 12,
                           .top_k = 4,
                           .max_tokens = 9,
                           .accumulate = tp_size == 3};
    check(shape, calls_of(shape, {Routes::uniform, Routes::holes, Routes::one_rank}, 3), 2);
  }
}

TEST_P(RanksExchange, RanksWithoutTokensAndWithoutExpertsHangNobody) {
  const RanksShape shape{.num_ranks = 4, .num_experts = 3, .max_tokens = 8};
  std::vector<RanksCall> calls;
  for (const std::vector<std::int64_t>& tokens : {std::vector<std::int64_t>{5, 0, 3, 0}, {0, 0, 0, 0}, {0, 8, 0, 0}}) {
    calls.emplace_back(shape, Routes::uniform, 5, tokens);
  }
  check(shape, calls);
}

TEST_P(RanksExchange, ReplicasOfExpertsAreChosenByGroupAndToken) {
  for (int tp_size = 1; tp_size <= largest_group(); ++tp_size) {
    const RanksShape shape{.num_ranks = 4,
                           .tp_size = tp_size,
                           .num_experts = 6,
                           .top_k = 3,
                           .max_tokens = 12,
                           .num_physical_experts = 9,
                           .max_replicas = 3};
    check(shape, calls_of(shape, {Routes::uniform, Routes::garbage, Routes::holes}, 21));
  }
}

TEST_P(RanksExchange, OverflowIsSeenAtBothEndsAndLaterCallsAreRight) {
  for (const Layout layout : {Layout::packed, Layout::batched}) {
    const RanksShape shape{.num_ranks = 3, .num_experts = 6, .top_k = 3, .layout = layout, .capacity = 7};
    check(shape,
          calls_of(shape, {Routes::one_expert, Routes::holes, Routes::uniform, Routes::one_rank, Routes::holes}, 2));
  }
}

TEST_P(RanksExchange, PartialsInFp32AreNotRoundedOnTheWay) {
  const RanksShape shape{.num_ranks = 3, .top_k = 5, .fp32_partials = true, .accumulate = true};
  check(shape, calls_of(shape, {Routes::uniform, Routes::duplicates}, 4));
}

TEST_P(RanksExchange, CallsInHalvesAreTheSame) {
  for (int tp_size = 1; tp_size <= largest_group(); ++tp_size) {
    const RanksShape shape{.num_ranks = 4, .tp_size = tp_size, .top_k = 3};
    check(shape, calls_of(shape, {Routes::uniform, Routes::garbage, Routes::one_rank}, 9), 2,
          /*split=*/true);
  }
}

TEST_P(RanksExchange, DeviceSideCountsBoundWhatIsSent) {
  const RanksShape shape{.num_ranks = 3, .accumulate = true, .device_counts = true};
  check(shape, calls_of(shape, {Routes::uniform, Routes::uniform, Routes::duplicates}, 8));
}

TEST_P(RanksExchange, MoreTokensThanDecodeTakesTravelAsWell) {
  // Some ranks are far past the crossover, others below: each tells the others how its rows come.
  const RanksShape shape{.num_ranks = 3, .num_experts = 16, .top_k = 4, .hidden = 64, .max_tokens = 1200};
  check(shape,
        {RanksCall(shape, Routes::uniform, 1, {1200, 3, 700}), RanksCall(shape, Routes::holes, 2, {0, 1100, 40}),
         RanksCall(shape, Routes::one_rank, 3, {5, 0, 1200})},
        2);
}

TEST_P(RanksExchange, RandomShapesMatchTheReference) {
  std::mt19937 random(29);
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  for (int i = 0; i < 14 / kFewer; ++i) {
    RanksShape shape{.num_ranks = pick(2, 3, 4, 5, 6, 8)};
    if (on_gpu() && shape.num_ranks > 4) shape.num_ranks = 4;
    shape.tp_size = shape.num_ranks % 2 == 0 ? pick(1, 2) : 1;
    if (!on_one_node()) shape.tp_size = 1;
    shape.num_experts = pick(1, 5, 16, 60, 257);
    shape.top_k = pick(1, 2, 3, 8, 16, 22);
    shape.hidden = pick(8, 72, 256, 1032);
    shape.max_tokens = pick(1, 7, 33, 64);
    shape.payload.type = pick(DataType::bfloat16, DataType::float16, DataType::float32);
    shape.payload.scale_bytes = pick(0, 4, 12, 63);
    shape.combine = {pick(DataType::bfloat16, DataType::float32), pick(DataType::bfloat16, DataType::float32)};
    shape.fp32_partials = random() % 2 == 0;
    shape.index = pick(IndexType::int32, IndexType::int64);
    shape.layout = random() % 3 == 0 ? Layout::batched : Layout::packed;
    shape.alignment = shape.layout == Layout::packed ? pick(1, 8, 128) : 1;
    shape.weight_mode = pick(WeightMode::on_combine, WeightMode::on_input, WeightMode::none);
    shape.accumulate = random() % 2 == 0;
    shape.zero_pads = random() % 2 == 0;
    if (i % 3 == 2) {
      shape.num_physical_experts = shape.num_experts + 3;
      shape.max_replicas = 3;
    }
    SCOPED_TRACE(i);
    check(shape, calls_of(shape, {Routes::uniform, Routes::garbage, Routes::one_expert}, i * 10 + 1), 1 + i % 3,
          i % 4 == 3);
    if (HasFatalFailure()) return;
  }
}

TEST_P(RanksExchange, ReusedRoutingMovesOtherTokensToTheSameRows) {
  const RanksShape shape = placed({.num_ranks = 3, .top_k = 3, .max_tokens = 6});
  const RanksCall first(shape, Routes::holes, 6, {6, 2, 0});
  RanksCall second = first;
  std::mt19937 random(77);
  const auto communicators = ranks_on(device(), shape);
  for (Bytes& tokens : second.tokens) {
    for (std::size_t i = 0; i < tokens.size(); i += 2) tokens[i] = static_cast<unsigned char>(random());
  }
  std::vector<const unsigned char*> data;
  for (const Bytes& tokens : second.tokens) data.push_back(tokens.data());
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    second.rows[rank] = reference::dispatch_rows(second.routing[rank], shape.top_k, data, shape.hidden * 2);
  }
  on_every_rank(communicators, [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    rank.run(first);
    rank.load(second);
    rank.enqueue(/*split=*/false, /*reuse_routing=*/true);
    rank.expect(second, "whole");
    rank.load(second);
    rank.enqueue(/*split=*/true, /*reuse_routing=*/true);
    rank.expect(second, "halves");
    communicator.barrier();
  });
}

TEST_P(RanksExchange, SixteenRanksFindEachOther) {
  if (on_gpu()) GTEST_SKIP() << "sixteen ranks on one device are a test of the host";
  const RanksShape shape{.num_ranks = 16, .num_experts = 35, .top_k = 6, .max_tokens = 5};
  check(shape, calls_of(shape, {Routes::uniform, Routes::garbage}, 40));
}

TEST_P(RanksExchange, SharedWorkspaceServesExchangesThatTakeTurns) {
  const RanksShape small = placed({.num_ranks = 2, .max_tokens = 4});
  const RanksShape large = placed({.num_ranks = 2, .num_experts = 12, .top_k = 4, .hidden = 64, .max_tokens = 20});
  const RanksCall first(small, Routes::uniform, 1);
  const RanksCall second(large, Routes::duplicates, 2);
  const auto communicators = ranks_on(device(), small);
  on_every_rank(communicators, [&](const Communicator& communicator) {
    const Workspace workspace(communicator, {small.config(), large.config()});
    ExchangeRank a(communicator, small, Exchange(communicator, small.config(), workspace), 1);
    ExchangeRank b(communicator, large, Exchange(communicator, large.config(), workspace), 1);
    for (int turn = 0; turn < 3; ++turn) {
      a.run(first);
      b.run(second);
    }
    communicator.barrier();
  });
}

TEST_P(RanksExchange, TwoExchangesInterleavedOnTwoStreamsDoNotMix) {
  const RanksShape shape = placed({.num_ranks = 3, .top_k = 3, .max_tokens = 6});
  std::vector<RanksCall> calls;
  for (unsigned i = 0; i < 6; ++i) calls.emplace_back(shape, kAllRoutes[i], i);
  const auto communicators = ranks_on(device(), shape);
  on_every_rank(communicators, [&](const Communicator& communicator) {
    ExchangeRank first(communicator, shape);
    ExchangeRank second(communicator, shape);
    ExchangeRank* const both[] = {&first, &second};
    if (on_gpu()) first.max_sms = second.max_sms = 8;  // both of every rank at the same time
    for (int round = 0; round < 20; ++round) {
      for (int turn = 0; turn < 2; ++turn) {
        const int which = on_gpu() ? turn : (turn + communicator.rank()) % 2;  // who goes first is nobody's business
        both[which]->load(calls[(round + which) % 6]);
        both[which]->enqueue(round % 3 == 2);
      }
      for (int which = 0; which < 2; ++which) both[which]->expect(calls[(round + which) % 6], std::to_string(round));
      if (HasFatalFailure()) break;
    }
    communicator.barrier();
  });
}

TEST_P(RanksExchange, MemoryIsWhatWasAnnounced) {
  const RanksShape shape =
      placed({.num_ranks = 4, .tp_size = on_one_node() ? 2 : 1, .max_tokens = 100, .payload = {.scale_bytes = 6}});
  const auto communicators = ranks_on(device(), shape);
  on_every_rank(communicators, [&](const Communicator& communicator) {
    const MemoryReport announced = Exchange::memory(communicator, shape.config());
    const Exchange exchange(communicator, shape.config());
    EXPECT_EQ(announced.to_string(), exchange.memory().to_string());
    const std::string words = announced.to_string();
    for (const char* name : {"slot_rows", "partial_rows", on_one_node() ? "result_rows" : "rows from remotes", "flags",
                             "rows and weights of entries"}) {
      EXPECT_NE(words.find(name), std::string::npos) << name << "\n" << words;
    }
    EXPECT_EQ(exchange.mode(), on_one_node() ? Mode::nvlink : Mode::p2p);
    EXPECT_NE(exchange.describe_plan(5).find(on_one_node() ? "nvlink" : "loopback"), std::string::npos);
    communicator.barrier();
  });
}

TEST(RanksOfSeveralNodes, HaveNoGroups) {
  const RanksShape shape{.num_ranks = 4, .tp_size = 2, .ranks_per_node = 2};
  on_every_rank(ranks_on(Device::host(), shape), [&](const Communicator& communicator) {
    try {
      const Exchange exchange(communicator, shape.config());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("tp_size is 2"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace moelink::test
