// Pages of the cache: who has them, and what is found in them again.
#include "engine/requests/page_cache.hpp"

#include <gtest/gtest.h>

#include <tuple>

namespace moelink::engine {
namespace {

using Tokens = std::vector<Token>;

/// Allocates and publishes pages with these tokens, two a page; the caller has them.
std::vector<std::int32_t> fill(PageCache& cache, const Tokens& tokens) {
  std::vector<std::int32_t> pages;
  PageCache::Content content = PageCache::kStart;
  for (std::size_t i = 0; i + 2 <= tokens.size(); i += 2) {
    pages.push_back(cache.allocate().value());
    content = cache.publish(pages.back(), content, std::span(tokens).subspan(i, 2));
  }
  return pages;
}

void release(PageCache& cache, const std::vector<std::int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) cache.release(*page);
}

TEST(PageCache, EveryPageIsAllocatedOnceUntilItIsReleased) {
  PageCache cache(3, 2);
  std::vector<bool> seen(3);
  for (int i = 0; i < 3; ++i) {
    const std::int32_t page = cache.allocate().value();
    EXPECT_FALSE(seen.at(static_cast<std::size_t>(page)));
    seen.at(static_cast<std::size_t>(page)) = true;
  }
  EXPECT_FALSE(cache.allocate());
  cache.release(1);
  EXPECT_EQ(cache.num_free(), 1);
  EXPECT_EQ(cache.allocate(), 1);
}

TEST(PageCache, OnlyWholePagesOfTheSameStartAreFound) {
  PageCache cache(8, 2);
  const std::vector<std::int32_t> pages = fill(cache, {1, 2, 3, 4});
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 5}).pages, pages);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3}).pages, std::vector{pages[0]});
  EXPECT_EQ(cache.find(Tokens{1, 2, 9, 4}).pages, std::vector{pages[0]});
  EXPECT_TRUE(cache.find(Tokens{1}).pages.empty());
  EXPECT_TRUE(cache.find(Tokens{3, 4}).pages.empty()) << "the same tokens at another place have other keys";
}

TEST(PageCache, PagesThatAreFoundAreNotAllocatedToOthers) {
  PageCache cache(2, 2);
  const std::vector<std::int32_t> pages = fill(cache, {1, 2, 3, 4});
  release(cache, pages);
  EXPECT_EQ(cache.num_free(), 2);
  EXPECT_EQ(cache.find(Tokens{1, 2, 7, 7}).pages, std::vector{pages[0]});
  EXPECT_EQ(cache.allocate(), pages[1]);
  EXPECT_FALSE(cache.allocate());
}

TEST(PageCache, ASharedPageIsFreeWhenTheLastHasReleasedIt) {
  PageCache cache(1, 2);
  const std::vector<std::int32_t> pages = fill(cache, {1, 2});
  ASSERT_EQ(cache.find(Tokens{1, 2}).pages, pages);
  cache.release(pages[0]);
  EXPECT_EQ(cache.num_free(), 0);
  cache.release(pages[0]);
  EXPECT_EQ(cache.num_free(), 1);
}

TEST(PageCache, WhatWasReleasedLongestAgoIsForgottenFirst) {
  PageCache cache(4, 2);
  const std::vector<std::int32_t> older = fill(cache, {1, 2, 3, 4});
  const std::vector<std::int32_t> newer = fill(cache, {5, 6, 7, 8});
  release(cache, older);
  release(cache, newer);
  EXPECT_EQ(cache.allocate(), older[1]) << "the end of a sequence goes before its start";
  EXPECT_EQ(cache.allocate(), older[0]);
  EXPECT_TRUE(cache.find(Tokens{1, 2, 3, 4}).pages.empty());
  EXPECT_EQ(cache.find(Tokens{5, 6, 7, 8}).pages, newer);
}

TEST(PageCache, AForgottenPageIsNotFoundByWhatFollowedIt) {
  PageCache cache(3, 2);
  const std::vector<std::int32_t> pages = fill(cache, {1, 2, 3, 4});
  cache.release(pages[0]);  // the wrong way round: the start is forgotten first
  cache.release(pages[1]);
  std::ignore = cache.allocate();
  ASSERT_EQ(cache.allocate(), pages[0]);
  cache.publish(pages[0], PageCache::kStart, Tokens{1, 2});
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4}).pages, std::vector{pages[0]});
}

TEST(PageCache, TheSameContentTwiceIsFoundOnceAndGoesOn) {
  PageCache cache(4, 2);
  const std::vector<std::int32_t> first = fill(cache, {1, 2});
  const std::vector<std::int32_t> second = fill(cache, {1, 2, 3, 4});
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4}).pages, (std::vector{first[0], second[1]}));
}

}  // namespace
}  // namespace moelink::engine
