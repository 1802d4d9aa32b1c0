#include "perf/common/size_list.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "perf/common/model.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(SizeList, SuffixesArePowersOf1024) {
  EXPECT_EQ(parse_size("0", "-b"), 0);
  EXPECT_EQ(parse_size("16K", "-b"), 16384);
  EXPECT_EQ(parse_size("1M", "-b"), 1 << 20);
  EXPECT_EQ(parse_size("3g", "-b"), std::int64_t{3} << 30);
}

TEST(SizeList, WhatIsNoSizeIsRefusedNotReadAsZero) {
  for (const char* text : {"", "K", "-1", "1.5", "12x", "1KB", " 1", "99999999999999999999", "9000000000G"}) {
    EXPECT_THROW((void)parse_size(text, "-b"), UsageError) << text;
  }
}

TEST(SizeList, ListKeepsItsOrderAndRefusesHoles) {
  EXPECT_EQ(parse_size_list("0,1,33,4K", "--tokens"), (Sizes{0, 1, 33, 4096}));
  EXPECT_THROW((void)parse_size_list("1,,2", "--tokens"), UsageError);
  EXPECT_THROW((void)parse_size_list("1,", "--tokens"), UsageError);
}

TEST(SizeList, SweepIncludesItsEndAndAlwaysEnds) {
  EXPECT_EQ(size_sweep(1, 8, 2), (Sizes{1, 2, 4, 8}));
  EXPECT_EQ(size_sweep(1, 9, 3), (Sizes{1, 3, 9}));
  EXPECT_EQ(size_sweep(std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max(), 2).size(), 1U);
  EXPECT_THROW((void)size_sweep(0, 8, 2), UsageError);
  EXPECT_THROW((void)size_sweep(1, 8, 1), UsageError);
  EXPECT_THROW((void)size_sweep(16, 8, 2), UsageError);
}

TEST(Models, UnknownNameIsRefusedAndSaysWhatIsKnown) {
  EXPECT_EQ(models_of_names("deepseek-v3,gpt-oss-120b").size(), 2U);
  EXPECT_EQ(models_of_names("all").size(), known_models().size());
  try {
    (void)models_of_names("deepseek-v3,nonesuch");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("nonesuch"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("mixtral-8x7b"), std::string::npos);
  }
}

}  // namespace
}  // namespace moelink::perf
