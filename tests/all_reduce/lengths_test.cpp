// Ranks that pass different lengths to one call are told so, in every algorithm; ranks that agree never are.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "all_reduce/all_reduce_fixture.hpp"
#include "moelink/error.hpp"
#include "moelink/protocol/all_reduce.hpp"
#include "support/device.hpp"

namespace moelink::test {
namespace {

class AllReduceLengths : public DeviceTest {
 protected:
  /// The errors of a call in which rank r passes counts[r], after `calls_before` calls in which all agree.
  static std::vector<std::string> errors_of(AllReduceAlgorithm algorithm, const std::vector<std::int64_t>& counts,
                                            int calls_before) {
    std::mt19937_64 random(5);
    AllReduceGroup group(static_cast<int>(counts.size()), device(),
                         {.type = DataType::float32, .max_elements = 1'000'000, .algorithm = algorithm});
    for (int call = 0; call < calls_before; ++call) {
      group.run_and_check(counts[static_cast<std::size_t>(call) % counts.size()], random, 0, false, false);
    }
    for (int r = 0; r < group.size(); ++r) {
      AllReduceRank& rank = group.rank(r);
      rank.all_reduce({.input = rank.input.data(),
                       .output = rank.output.data(),
                       .num_elements = counts[static_cast<std::size_t>(r)]},
                      rank.stream);
    }
    std::vector<std::string> errors;
    for (int r = 0; r < group.size(); ++r) {
      group.rank(r).stream.synchronize();
      try {
        group.rank(r).all_reduce.check();
        errors.emplace_back();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
        errors.emplace_back(error.what());
      }
    }
    return errors;
  }

  static void expect_told(AllReduceAlgorithm algorithm, const std::vector<std::int64_t>& counts) {
    for (const int calls_before : {0, 1, 2}) {
      const std::vector<std::string> errors = errors_of(algorithm, counts, calls_before);
      bool named = false;  // by the rank that noticed first
      for (std::size_t r = 0; r < counts.size(); ++r) {
        EXPECT_NE(errors[r].find("passed different lengths to all_reduce"), std::string::npos)
            << name_of(algorithm) << ", rank " << r << " of lengths " << testing::PrintToString(counts) << " after "
            << calls_before << " calls: '" << errors[r] << "'";
        named = named || errors[r].find("(rank " + std::to_string(r) + ": " + std::to_string(counts[r]) +
                                        " elements)") != std::string::npos;
      }
      EXPECT_TRUE(named) << errors.front();
    }
  }
};

MOELINK_TEST_ON_DEVICES(AllReduceLengths);

TEST_P(AllReduceLengths, OneElementMoreInTheSameVectorIsNotSummed) {
  // `automatic` pushes so few; `push` alone would not take a configuration of a million elements.
  for (const auto algorithm :
       {AllReduceAlgorithm::automatic, AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot}) {
    expect_told(algorithm, {10, 11});
    expect_told(algorithm, {64, 64, 63});
  }
}

TEST_P(AllReduceLengths, PacksOfAnotherLengthAreNotSummed) {
  expect_told(AllReduceAlgorithm::pack, {10, 11});
  expect_told(AllReduceAlgorithm::pack, {1'000'000, 999'000});
  expect_told(AllReduceAlgorithm::pack, {1'000, 90'000});
}

TEST_P(AllReduceLengths, MoreBlocksOnOneRankDoNotWaitForTheDeadline) {
  expect_told(AllReduceAlgorithm::automatic, {10, 5'000});
  for (const auto algorithm : {AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot}) {
    expect_told(algorithm, {1'000, 90'000});
  }
}

TEST_P(AllReduceLengths, MoreStepsOnOneRankAreNoticedThoughItRunsAhead) {
  for (const auto algorithm : {AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot}) {
    expect_told(algorithm, {1'000'000, 2'000, 1'000'000});
    expect_told(algorithm, {600'000, 1'000'000});
  }
}

TEST_P(AllReduceLengths, AnotherAlgorithmAtTheOtherRankIsATimeoutThatNamesThePossibility) {
  const auto communicators = Communicator::in_process(
      2, {.devices = on_gpu() ? std::vector<int>{0} : std::vector<int>{}, .deadline = std::chrono::milliseconds(300)});
  std::vector<AllReduce> objects = on_every_rank(communicators, [](const Communicator& communicator) {
    return AllReduce(communicator, {.type = DataType::float32, .max_elements = 1'000'000});
  });
  ASSERT_EQ(objects[0].describe_plan(10).find("push"), 0U);
  ASSERT_EQ(objects[0].describe_plan(1'000'000).find("stream"), 0U);
  const Stream streams[] = {Stream(device(), {.num_threads = 1}), Stream(device(), {.num_threads = 1})};
  const Buffer memory[] = {Buffer(device(), 4'000'000), Buffer(device(), 4'000'000)};
  for (const std::size_t r : {0U, 1U}) {
    objects[r]({.input = memory[r].data(), .output = memory[r].data(), .num_elements = r == 0 ? 10 : 1'000'000},
               streams[r]);
  }
  int named = 0;
  for (const std::size_t r : {0U, 1U}) {
    streams[r].synchronize();
    try {
      objects[r].check();
      ADD_FAILURE() << "rank " << r << " saw no fault";
    } catch (const Error& error) {
      named += std::string(error.what()).find("or passed another length to it") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GE(named, 1);
}

TEST(LineTag, DiffersInLengthOnlyWithinOneEpoch) {
  const u32 expected = LineTag::of(7, length_key(100));
  EXPECT_FALSE(LineTag::differs_in_length(expected, expected));
  EXPECT_TRUE(LineTag::differs_in_length(LineTag::of(7, length_key(101)), expected));
  EXPECT_FALSE(LineTag::differs_in_length(LineTag::of(5, length_key(101)), expected)) << "the last call's, rightly";
  EXPECT_FALSE(LineTag::differs_in_length(0, LineTag::of(1 << 15, 0))) << "fresh memory";
}

TEST(LineTag, TellsTheEpochThatItHoldsAlsoPastItsBits) {
  for (const u64 epoch : {u64{1}, u64{2}, u64{0x7fff}, u64{0x8000}, u64{0x8001}, u64{1} << 40}) {
    EXPECT_EQ(LineTag::epoch_of(LineTag::of(epoch, 65'520), epoch), epoch);
    if (epoch > 2) {
      EXPECT_EQ(LineTag::epoch_of(LineTag::of(epoch - 2, 3), epoch), epoch - 2);
    }
  }
  EXPECT_EQ(LineTag::epoch_of(0, 9), 0U);
}

TEST(StepFlag, GrowsWithTheEpochWhateverElseItHolds) {
  EXPECT_LT(StepFlag::of(6, 1, 65'520), StepFlag::of(7, 0, 0));
  EXPECT_EQ(StepFlag::epoch_of(StepFlag::of(7, 1, 65'520)), 7U);
}

TEST(StepFlag, NextCallsOfAnotherLengthAreNoMismatch) {
  const u32 mine = length_key(100);
  const u32 other = length_key(200);
  EXPECT_TRUE(StepFlag::differs_in_length(StepFlag::of(7, 0, other), 7, mine));
  EXPECT_TRUE(StepFlag::differs_in_length(StepFlag::of(8, 1, other), 7, mine)) << "one step ahead in this call";
  EXPECT_TRUE(StepFlag::differs_in_length(StepFlag::of(6 + kStreamAhead, kStreamAhead - 1, other), 7, mine))
      << "as far ahead in this call as a rank may be that has not seen this one's first flag";
  EXPECT_FALSE(StepFlag::differs_in_length(StepFlag::of(8, 1, mine), 7, mine));
  EXPECT_FALSE(StepFlag::differs_in_length(StepFlag::of(8, 0, other), 7, mine)) << "in the next call";
  EXPECT_FALSE(StepFlag::differs_in_length(StepFlag::of(9, 1, other), 7, mine)) << "further in the next call";
  for (const i64 late : {StepFlag::kLateStep, StepFlag::kLateStep + 1, i64{1} << 40}) {
    EXPECT_FALSE(StepFlag::differs_in_length(StepFlag::of(7 + static_cast<u64>(late), late, other), 7, mine))
        << "so far on that it says nothing about its first step";
    EXPECT_FALSE(StepFlag::differs_in_length(StepFlag::of(7 + u64{StepFlag::kLateStep}, late, other), 7, mine));
  }
}

}  // namespace
}  // namespace moelink::test
