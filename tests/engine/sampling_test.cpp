// From logits to tokens: the right ones, in the right parts, the same for the same seed.
#include "engine/requests/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "comm/expect_error.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What is picked at the first `count` places.
std::vector<Token> pick(const SamplingOptions& options, const std::vector<float>& logits, std::uint64_t count = 2000) {
  Sampler sampler(options);
  std::vector<Token> picked;
  for (std::uint64_t i = 0; i < count; ++i) picked.push_back(sampler.pick(logits, i).value());
  return picked;
}

std::set<Token> distinct(const std::vector<Token>& tokens) { return {tokens.begin(), tokens.end()}; }

/// Probabilities 0.5, 0.25, 0.15, 0.1, not in order.
const std::vector<float> kLogits{std::log(0.15F), std::log(0.5F), std::log(0.1F), std::log(0.25F)};

TEST(Sampling, TemperatureZeroPicksTheLikeliestAndTheSmallerOfEquals) {
  EXPECT_EQ(distinct(pick({}, {1, 3, 3, 2})), std::set<Token>{1});
}

TEST(Sampling, TokensComeInTheirProbabilities) {
  std::vector<double> parts(4);
  const std::uint64_t count = 20000;
  for (const Token token : pick({.temperature = 1, .seed = 7}, kLogits, count)) {
    parts.at(static_cast<std::size_t>(token)) += 1.0 / static_cast<double>(count);
  }
  EXPECT_NEAR(parts[0], 0.15, 0.015);
  EXPECT_NEAR(parts[1], 0.5, 0.015);
  EXPECT_NEAR(parts[2], 0.1, 0.015);
  EXPECT_NEAR(parts[3], 0.25, 0.015);
}

TEST(Sampling, LowTemperatureSharpens) {
  const std::vector<Token> cold = pick({.temperature = 0.25}, kLogits);
  EXPECT_GT(std::count(cold.begin(), cold.end(), 1), 1750);  // 0.5^4 of 0.5^4 + 0.25^4 + ...: 93 %
  EXPECT_EQ(distinct(pick({.temperature = 1e-3}, kLogits)), std::set<Token>{1});
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_k = 1}, kLogits)), std::set<Token>{1});
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_k = 2}, kLogits)), (std::set<Token>{1, 3}));
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_k = 9}, kLogits)), (std::set<Token>{0, 1, 2, 3}));
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_p = 1e-9}, kLogits)), std::set<Token>{1});
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_p = 0.6}, kLogits)), (std::set<Token>{1, 3}));
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_p = 0.8}, kLogits)), (std::set<Token>{0, 1, 3}));
  // Of two, which have 2/3 and 1/3.
  EXPECT_EQ(distinct(pick({.temperature = 1, .top_k = 2, .top_p = 0.6}, kLogits)), std::set<Token>{1});
}

TEST(Sampling, TopPOfManyTokensSortsAsManyAsItNeeds) {
  std::vector<float> logits(1000, 0);
  for (const Token token : pick({.temperature = 1, .top_p = 0.3}, logits)) EXPECT_LT(token, 301);
  EXPECT_GT(distinct(pick({.temperature = 1, .top_p = 0.3}, logits)).size(), 250U);
}

TEST(Sampling, ASeedGivesTheSameTokensAndAnotherSeedOthers) {
  const SamplingOptions options{.temperature = 1, .top_p = 0.95, .seed = 3};
  EXPECT_EQ(pick(options, kLogits), pick(options, kLogits));
  SamplingOptions other = options;
  other.seed = 4;
  EXPECT_NE(pick(options, kLogits), pick(other, kLogits));
}

TEST(Sampling, APlaceIsPickedAloneAsInTheSequence) {
  const SamplingOptions options{.temperature = 1, .seed = 3};
  EXPECT_EQ(Sampler(options).pick(kLogits, 1234), pick(options, kLogits)[1234]);
}

TEST(Sampling, WhatIsNoNumberIsNeverPicked) {
  for (const double temperature : {0.0, 1.0}) {
    const SamplingOptions options{.temperature = temperature};
    EXPECT_EQ(distinct(pick(options, {kNan, -kInfinity, 1, kNan, kInfinity})), std::set<Token>{2});
    EXPECT_FALSE(Sampler(options).pick(std::vector<float>{kNan, -kInfinity}, 0));
  }
}

TEST(Sampling, ValuesOutOfRangeAreRefused) {
  const auto refused = [](const SamplingOptions& options, const char* what) {
    expect_error(ErrorCode::invalid_argument, {what}, [&] { check_sampling(options); });
  };
  refused({.temperature = -0.1}, "temperature is -0.1");
  refused({.temperature = 101}, "temperature is 101");
  refused({.temperature = kNan}, "temperature is nan");
  refused({.top_k = -1}, "top_k is -1");
  refused({.top_p = 0}, "top_p is 0");
  refused({.top_p = 1.01}, "top_p is 1.01");
  refused({.top_p = kNan}, "top_p is nan");
}

}  // namespace
}  // namespace moelink::engine
