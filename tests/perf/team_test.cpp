#include "perf/common/team.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "perf/common/statistics.hpp"

namespace moelink::perf {
namespace {

TEST(Team, EveryRangeIsDoneOnceWhateverTheNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    Team team(threads);
    for (const std::int64_t count : {0, 1, 7, 64}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      team.for_ranges(count, 3, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
      });
      for (const auto& times : done) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(Team, CopiesAreWholeWhetherSharedOrNot) {
  Team team(3);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, 2 * Team::kSmallestShareBytes - 1,
                                   2 * Team::kSmallestShareBytes, 5 * Team::kSmallestShareBytes + 7}) {
    std::vector<unsigned char> from(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 31 + 1);
    std::vector<unsigned char> to(from.size() + 1, 0xee);
    team.copy(to.data(), from.data(), bytes);
    EXPECT_EQ(to.back(), 0xee) << bytes;
    to.pop_back();
    EXPECT_EQ(to, from) << bytes;
  }
}

TEST(Team, ManyRoundsLoseNoThread) {
  Team team(3);
  std::atomic<int> sum{0};
  for (int round = 0; round < 2000; ++round) {
    team.run([&](int thread) { sum += thread; });
  }
  EXPECT_EQ(sum.load(), 2000 * (0 + 1 + 2));
}

TEST(Percentiles, NearestRankNeverInventsASample) {
  EXPECT_EQ(percentiles({}).p50, 0);
  EXPECT_EQ(percentiles({7}).p99, 7);
  std::vector<double> samples;
  for (int i = 200; i > 0; --i) samples.push_back(i);
  EXPECT_EQ(percentiles(samples).p50, 100);
  EXPECT_EQ(percentiles(samples).p99, 198);
}

}  // namespace
}  // namespace moelink::perf
