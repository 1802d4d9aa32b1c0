// Which steps are captured, and that what fills a step up changes nothing. (Replays: gpu_ranks_test.cpp.)
#include "engine/requests/step_graphs.hpp"

#include <gtest/gtest.h>

#include "engine/generation.hpp"

namespace moelink::engine {
namespace {

using testing::data_folder;
using testing::Expected;
using testing::Runner;

std::vector<std::int64_t> rows_of(const StepBuckets& buckets) {
  std::vector<std::int64_t> rows;
  for (const StepShape& shape : buckets.shapes()) rows.push_back(shape.num_rows);
  return rows;
}

TEST(StepBuckets, ArePowersOfTwoAndTheLargestStep) {
  EXPECT_EQ(rows_of(StepBuckets(8, 8, false)), (std::vector<std::int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(rows_of(StepBuckets(9, 9, true)), (std::vector<std::int64_t>{0, 1, 2, 4, 8, 9}));
  EXPECT_EQ(rows_of(StepBuckets(1, 1, false)), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(StepBuckets(0, 8, false).shapes().empty());
}

TEST(StepBuckets, ABatchThatFitsNoneIsLeftAsItIs) {
  const StepBuckets buckets(4, 2, false);
  Batch rows;
  rows.rows.resize(5);
  EXPECT_EQ(buckets.fill_up(rows), -1);
  EXPECT_EQ(rows.rows.size(), 5U);
  Batch logits;
  logits.rows.resize(3);
  logits.logit_rows = {0, 1, 2};
  EXPECT_EQ(buckets.fill_up(logits), -1);
  EXPECT_EQ(logits.logit_rows.size(), 3U);
}

TEST(StepBuckets, ABatchWithoutRowsIsFilledOnlyWhereNoneAreCaptured) {
  Batch batch;
  EXPECT_EQ(StepBuckets(4, 4, true).fill_up(batch), 0);
  EXPECT_TRUE(batch.rows.empty());
  EXPECT_EQ(StepBuckets(4, 4, false).fill_up(batch), 0);
  EXPECT_EQ(batch.rows.size(), 1U);
}

TEST(StepBuckets, WhatFillsAStepUpChangesNoBitOfTheOthers) {
  const auto cases = testing::expected_of("tiny-qwen3-moe");
  const ModelOptions options{.limits = {.max_rows = 64, .num_pages = 256, .page_size = 8}};
  Runner runner(Communicator::single(Device::host()), data_folder("tiny-qwen3-moe"), options);
  const auto size = static_cast<std::int64_t>(cases[0].prompt.size());
  testing::Sequence exact = runner.sequence(cases[0].prompt, size);
  testing::Sequence filled = runner.sequence(cases[0].prompt, size);
  Batch alone;
  Runner::add(alone, exact);
  Batch with_others;
  Runner::add(with_others, filled);
  const StepBuckets buckets(64, 16, false);
  ASSERT_GE(buckets.fill_up(with_others), 0);
  ASSERT_GT(with_others.rows.size(), alone.rows.size());
  ASSERT_GT(with_others.logit_rows.size(), alone.logit_rows.size());
  const std::vector<float> expected = runner.step(alone);
  std::vector<float> found = runner.step(with_others);
  found.resize(expected.size());
  EXPECT_EQ(found, expected);
  for (const BatchRow& row : std::span(with_others.rows).subspan(alone.rows.size())) EXPECT_EQ(row.sequence, -1);
}

}  // namespace
}  // namespace moelink::engine
