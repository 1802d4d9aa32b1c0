#include "moelink/device/primitives/round_robin.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "moelink/device/exec/host_exec.hpp"

namespace moelink::test {
namespace {

std::vector<std::pair<int, int>> visited_slowly(const std::vector<int>& lengths) {
  std::vector<std::pair<int, int>> items;
  const int longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  for (int position = 0; position < longest; ++position) {
    for (std::size_t list = 0; list < lengths.size(); ++list) {
      if (position < lengths[list]) items.emplace_back(static_cast<int>(list), position);
    }
  }
  return items;
}

void check(const std::vector<int>& lengths) {
  const HostExec ex(0, 1, nullptr);
  const RoundRobin turns(lengths.data(), static_cast<int>(lengths.size()));
  const auto expected = visited_slowly(lengths);
  ASSERT_EQ(static_cast<std::int64_t>(expected.size()), turns.total(ex));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const RoundRobin::Item item = turns.find(ex, static_cast<std::int64_t>(i));
    ASSERT_EQ(expected[i], std::pair(item.list, item.position)) << "item " << i;
  }
}

TEST(RoundRobin, ListsThatHaveEndedAreLeftOut) {
  check({});
  check({0});
  check({5});
  check({0, 3, 0});
  check({1, 7, 3});
  check({4, 4, 4, 4});
}

TEST(RoundRobin, EveryItemIsVisitedOnceWhateverTheLengths) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<int> lengths(random() % 9);
    for (int& length : lengths) length = random() % 3 == 0 ? 0 : static_cast<int>(random() % 40);
    check(lengths);
  }
}

}  // namespace
}  // namespace moelink::test
