// All-reduce on the host: ranks are threads, every algorithm, bit for bit against the reference.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "all_reduce/all_reduce_fixture.hpp"
#include "moelink/error.hpp"
#include "support/fewer.hpp"

namespace moelink::test {
namespace {

constexpr AllReduceAlgorithm kAlgorithms[] = {AllReduceAlgorithm::push, AllReduceAlgorithm::pack,
                                              AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot,
                                              AllReduceAlgorithm::automatic};

/// Pack is for two ranks.
bool can_run(AllReduceAlgorithm algorithm, int num_ranks) {
  return algorithm != AllReduceAlgorithm::pack || num_ranks <= 2;
}

/// Ranks of one process on the host, each of which must be refused.
void expect_no_construction(int num_ranks, const AllReduceConfig& config, ErrorCode code, const std::string& word) {
  const auto communicators = Communicator::in_process(num_ranks, {.deadline = std::chrono::seconds(10)});
  on_every_rank(communicators, [&](const Communicator& communicator) {
    try {
      const AllReduce all_reduce(communicator, config);
      ADD_FAILURE() << "rank " << communicator.rank() << " was constructed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  });
}

class EveryAlgorithmAndSize : public testing::TestWithParam<std::tuple<AllReduceAlgorithm, int>> {};

TEST_P(EveryAlgorithmAndSize, OddLengthsAndOffsetsAreSummedExactly) {
  const auto [algorithm, num_ranks] = GetParam();
  if (!can_run(algorithm, num_ranks)) {
    expect_no_construction(num_ranks, {.max_elements = 64, .algorithm = algorithm}, ErrorCode::unsupported,
                           "it is for two ranks, and there are " + std::to_string(num_ranks));
    return;
  }
  std::mt19937_64 random(7);
  for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
    AllReduceGroup group(num_ranks, Device::host(), {.type = type, .max_elements = 30'000, .algorithm = algorithm});
    for (const std::int64_t count : {1, 2, 7, 8, 9, 2049, 4096, 30'000}) {
      group.run_and_check(count, random, /*offset=*/count % 3, /*in_place=*/count % 2 == 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduce, EveryAlgorithmAndSize,
                         testing::Combine(testing::ValuesIn(kAlgorithms), testing::Values(1, 2, 3, 5, 6, 7, 8)),
                         [](const auto& tested) {
                           return std::string(name_of(std::get<0>(tested.param))) + "_" +
                                  std::to_string(std::get<1>(tested.param)) + "_ranks";
                         });

TEST(AllReduce, ManyRanksBeyondTheInlineWindowAreSummedExactly) {
  std::mt19937_64 random(11);
  for (const AllReduceAlgorithm algorithm : kAlgorithms) {
    if (!can_run(algorithm, 20)) continue;
    AllReduceGroup group(20, Device::host(), {.max_elements = 5000, .algorithm = algorithm});
    group.run_and_check(5000, random);
  }
}

TEST(AllReduce, ThousandsOfReusedIterationsOfChangingSizesNeverMixEpochs) {
  std::mt19937_64 random(3);
  AllReduceGroup group(3, Device::host(), {.type = DataType::float32, .max_elements = 140'000});
  for (int i = 0; i < 300 / kFewer; ++i) {
    const std::int64_t sizes[] = {1, 60, 3000, 20'000, 140'000};
    group.run_and_check(sizes[random() % 5], random, 0, random() % 2 == 0, false);
  }
}

TEST(AllReduce, OneTwoAndManyHostThreadsGiveTheSameBits) {
  for (const int threads : {1, 2, 4}) {
    std::mt19937_64 random(5);
    AllReduceGroup group(4, Device::host(), {.max_elements = 600'000, .algorithm = AllReduceAlgorithm::two_shot},
                         threads);
    group.run_and_check(600'000, random);
  }
}

TEST(AllReduce, ZeroElementsEnqueueNothingAndLaterCallsAreRight) {
  std::mt19937_64 random(1);
  AllReduceGroup group(2, Device::host(), {.max_elements = 100});
  AllReduceRank& only_one = group.rank(0);
  only_one.all_reduce({.num_elements = 0}, only_one.stream);
  group.run_and_check(100, random);
}

void expect_refused(AllReduceRank& rank, const AllReduceArgs& args, const std::string& word) {
  try {
    rank.all_reduce(args, rank.stream);
    FAIL() << "was not refused: " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(AllReduce, BadArgumentsAreRefusedBeforeAnythingIsEnqueuedAndLaterCallsAreRight) {
  std::mt19937_64 random(1);
  AllReduceGroup group(2, Device::host(), {.type = DataType::float32, .max_elements = 100});
  AllReduceRank& rank = group.rank(0);
  auto* memory = rank.input.as<std::byte>();
  expect_refused(rank, {.input = memory, .output = memory, .num_elements = 101}, "101");
  expect_refused(rank, {.input = memory, .output = memory, .num_elements = -1}, "-1");
  expect_refused(rank, {.input = nullptr, .output = memory, .num_elements = 1}, "input is null");
  expect_refused(rank, {.input = memory, .output = nullptr, .num_elements = 1}, "output is null");
  expect_refused(rank, {.input = memory + 2, .output = memory, .num_elements = 1}, "aligned");
  expect_refused(rank, {.input = memory, .output = memory + 4, .num_elements = 10}, "overlap");
  group.run_and_check(100, random);
}

TEST(AllReduce, ValuesOutsideTheirEnumsAndPlansOutsideTheConfigurationAreRefused) {
  const auto single = Communicator::single(Device::host());
  EXPECT_THROW(AllReduce(single, {.type = static_cast<DataType>(9), .max_elements = 4}), Error);
  EXPECT_THROW(AllReduce(single, {.max_elements = 4, .algorithm = static_cast<AllReduceAlgorithm>(99)}), Error);
  AllReduce all_reduce(single, {.max_elements = 4});
  EXPECT_THROW((void)all_reduce.describe_plan(-1), Error);
  EXPECT_THROW((void)all_reduce.describe_plan(5), Error);
  const AllReduce kept(std::move(all_reduce));
  EXPECT_THROW(all_reduce.check(), Error);
  EXPECT_THROW((void)all_reduce.describe_plan(1), Error);
}

TEST(AllReduce, RanksThatDisagreeAreToldWhichFieldAndBothValues) {
  const auto communicators = Communicator::in_process(3, {.deadline = std::chrono::seconds(10)});
  on_every_rank(communicators, [](const Communicator& communicator) {
    try {
      const AllReduce all_reduce(communicator, {.max_elements = communicator.rank() == 1 ? 64 : 128});
      ADD_FAILURE() << "rank " << communicator.rank() << " was constructed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      for (const char* word : {"rank 1", "max_elements", "64", "128"}) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    }
  });
}

TEST(AllReduce, NvlsByNameSaysWhyItCannotBeUsedOnEveryRank) {
  expect_no_construction(4, {.max_elements = 64, .deterministic = false, .algorithm = AllReduceAlgorithm::nvls},
                         ErrorCode::unsupported, "nvls, which cannot be used here: rank 0 forbids it");
}

TEST(AllReduce, NvlsByNameIsRefusedWhereTheSameBitsFromRunToRunArePromised) {
  expect_no_construction(4, {.max_elements = 64, .algorithm = AllReduceAlgorithm::nvls}, ErrorCode::invalid_argument,
                         "deterministic = false");
}

TEST(AllReduce, WithoutTheDeterministicPromiseHostRanksStillSumExactly) {
  std::mt19937_64 random(23);
  AllReduceGroup group(4, Device::host(), {.max_elements = 100'000, .deterministic = false});
  group.run_and_check(100'000, random);
}

TEST(AllReduce, MorePackThanASlotHoldsIsRefusedWhereNothingElseIsAllowed) {
  expect_no_construction(2, {.max_elements = 3'000'000, .algorithm = AllReduceAlgorithm::pack},
                         ErrorCode::invalid_argument, "the pack algorithm alone carries");
}

TEST(AllReduce, RankThatNeverCallsEndsAPackWithATimeoutThatNamesItAndTheEpoch) {
  const auto communicators = Communicator::in_process(2, {.deadline = std::chrono::milliseconds(300)});
  std::vector<AllReduce> objects = on_every_rank(communicators, [](const Communicator& communicator) {
    return AllReduce(communicator, {.max_elements = 40'000, .algorithm = AllReduceAlgorithm::pack});
  });
  std::vector<std::uint16_t> memory(40'000);
  const Stream stream(Device::host(), {.num_threads = 1});
  objects[0]({.input = memory.data(), .output = memory.data(), .num_elements = 40'000}, stream);
  stream.synchronize();
  try {
    objects[0].check();
    ADD_FAILURE() << "rank 0 saw no fault";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    for (const char* word : {"for rank 1", "all_reduce_pack of epoch 1", "saw 0"}) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST(AllReduce, RankThatNeverCallsEndsTheOthersWithATimeoutThatNamesIt) {
  const auto communicators = Communicator::in_process(3, {.deadline = std::chrono::milliseconds(300)});
  std::vector<AllReduce> objects = on_every_rank(
      communicators, [](const Communicator& communicator) { return AllReduce(communicator, {.max_elements = 64}); });
  std::vector<float> memory(3 * 64);
  const Stream streams[] = {Stream(Device::host(), {.num_threads = 1}), Stream(Device::host(), {.num_threads = 1})};
  for (int r = 0; r < 2; ++r) {
    float* mine = memory.data() + r * 64;
    objects[static_cast<std::size_t>(r)]({.input = mine, .output = mine, .num_elements = 64}, streams[r]);
  }
  int named = 0;
  for (int r = 0; r < 2; ++r) {
    streams[r].synchronize();
    try {
      objects[static_cast<std::size_t>(r)].check();
      ADD_FAILURE() << "rank " << r << " saw no fault";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::timeout || error.code() == ErrorCode::peer) << error.what();
      named += std::string(error.what()).find("rank 2") != std::string::npos ? 1 : 0;
      EXPECT_THROW(objects[static_cast<std::size_t>(r)].check(), Error) << "a fault is terminal";
    }
  }
  EXPECT_GE(named, 1) << "nobody said that rank 2 was missing";
}

}  // namespace
}  // namespace moelink::test
