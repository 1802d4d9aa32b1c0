// Buffers, flags and epochs that are used again and again, by ranks that come in any order.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "all_reduce/sum_check.hpp"

namespace moelink::testing {
namespace {

using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kIterations = 2'000;  // they look at every access, not at luck
constexpr int kManyStepCalls = 3;
#else
constexpr int kIterations = 100'000;
constexpr int kManyStepCalls = 60;
#endif
constexpr int kInFlight = 8;
constexpr std::int64_t kMostElements = 400;

/// Sometimes nothing, sometimes a spin of some microseconds, now and then a nap in which others run ahead.
void delay(std::mt19937& random) {
  const unsigned kind = random() % 256;
  if (kind == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  } else if (kind < 64) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(random() % 4000);
         std::chrono::steady_clock::now() < until;) {
    }
  }
}

/// Sizes follow from the call alone: equal on every rank.
std::int64_t elements_of(int call) {
  constexpr std::int64_t kSizes[] = {1, 2, 3, 8, 63, 64, 65, 255, kMostElements};
  return kSizes[std::mt19937(static_cast<unsigned>(call))() % std::size(kSizes)];
}

std::int64_t sum_many_times(const Communicator& communicator, AllReduceAlgorithm algorithm, int iterations) {
  AllReduce all_reduce(communicator,
                       {.type = DataType::float32, .max_elements = kMostElements, .algorithm = algorithm});
  const Stream stream(Device::host(), {.num_threads = 1});
  std::vector<SumCheck> checks(kInFlight, SumCheck(kMostElements));
  std::mt19937 random(static_cast<unsigned>(communicator.rank()) * 977 + 1);
  std::int64_t wrong = 0;
  for (int first = 0; first < iterations; first += kInFlight) {
    for (int i = 0; i < kInFlight; ++i) {
      delay(random);
      const int call = first + i;
      all_reduce(checks[static_cast<std::size_t>(i)].prepare(communicator, call, elements_of(call)), stream);
    }
    stream.synchronize();
    all_reduce.check();
    for (int i = 0; i < kInFlight; ++i) {
      wrong += checks[static_cast<std::size_t>(i)].count_wrong(communicator.size(), elements_of(first + i));
    }
  }
  communicator.barrier();
  return wrong;
}

class AllReduceReuse : public ::testing::TestWithParam<AllReduceAlgorithm> {};

TEST_P(AllReduceReuse, TensOfThousandsOfCallsWithRandomDelaysNeverMixEpochs) {
  const int share = GetParam() == AllReduceAlgorithm::push ? 2 : 4;  // all together: kIterations
  const int num_ranks = GetParam() == AllReduceAlgorithm::pack ? 2 : 3;
  const auto communicators = Communicator::in_process(num_ranks, {.deadline = 30s});
  on_every_rank(communicators, [&](const Communicator& communicator) {
    EXPECT_EQ(sum_many_times(communicator, GetParam(), kIterations / share), 0) << "rank " << communicator.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AllReduceReuse,
                         ::testing::Values(AllReduceAlgorithm::push, AllReduceAlgorithm::pack,
                                           AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(AllReduceSteps, MessagesOfManyStepsNeverMixTheSlotsOfTheirSteps) {
  for (const auto algorithm : {AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot}) {
    const auto communicators = Communicator::in_process(3, {.deadline = 30s});
    on_every_rank(communicators, [&](const Communicator& communicator) {
      constexpr std::int64_t kMost = 400'000;  // of stream 13 steps, which share 8 slots
      AllReduce all_reduce(communicator, {.type = DataType::float32, .max_elements = kMost, .algorithm = algorithm});
      const Stream stream(Device::host(), {.num_threads = 1});
      SumCheck check(kMost);
      std::mt19937 random(static_cast<unsigned>(communicator.rank()) * 977 + 1);
      for (int call = 0; call < kManyStepCalls; ++call) {
        const std::int64_t elements = kMost - call * 9'973 % 300'000;
        const AllReduceArgs args = check.prepare(communicator, call, elements);
        delay(random);
        all_reduce(args, stream);
        stream.synchronize();
        all_reduce.check();
        EXPECT_EQ(check.count_wrong(communicator.size(), elements), 0)
            << name_of(algorithm) << " rank " << communicator.rank() << " call " << call;
      }
      communicator.barrier();
    });
  }
}

TEST(AllReduceTogether, TwoObjectsInterleavedOnTwoStreamsDoNotMix) {
  const auto communicators = Communicator::in_process(3, {.deadline = 30s});
  on_every_rank(communicators, [](const Communicator& communicator) {
    constexpr std::int64_t kElements = 20'000;
    const AllReduceConfig config{.type = DataType::float32, .max_elements = kElements};
    AllReduce objects[] = {AllReduce(communicator, config), AllReduce(communicator, config)};
    const Stream streams[] = {Stream(Device::host(), {.num_threads = 1}), Stream(Device::host(), {.num_threads = 1})};
    SumCheck checks[] = {SumCheck(kElements), SumCheck(kElements)};
    for (int round = 0; round < 50; ++round) {
      const std::int64_t sizes[] = {1 + round * 400, kElements - round * 13};
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (turn + communicator.rank()) % 2;  // ranks do not agree on who goes first
        objects[which](checks[which].prepare(communicator, round * 2 + which, sizes[which]), streams[which]);
      }
      for (int which = 0; which < 2; ++which) {
        streams[which].synchronize();
        objects[which].check();
        EXPECT_EQ(checks[which].count_wrong(communicator.size(), sizes[which]), 0)
            << "rank " << communicator.rank() << " object " << which << " round " << round;
      }
    }
    communicator.barrier();
  });
}

}  // namespace
}  // namespace moelink::testing
