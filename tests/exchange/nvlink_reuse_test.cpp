// The same regions, flags and epochs used again and again, by ranks that run ahead and fall behind.
//
// MOELINK_TEST_ITERATIONS runs as many as one has time for.
#include <gtest/gtest.h>

#include <cstdlib>

#include "exchange/many_calls.hpp"

namespace moelink::test {
namespace {

int num_iterations() {
  if (const char* words = std::getenv("MOELINK_TEST_ITERATIONS")) return std::max(std::atoi(words), 1);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 300;  // they look at every access, not at luck
#else
  return 100'000;
#endif
}

TEST(NvlinkReuse, ThousandsOfCallsWithRandomDelaysNeverMixEpochs) {
  run_many_times({.num_ranks = 3, .num_experts = 7, .top_k = 2, .hidden = 16, .max_tokens = 3}, num_iterations());
}

TEST(NvlinkReuse, ThousandsOfCallsOfGroupsWithRandomDelaysNeverMixEpochs) {
  run_many_times({.num_ranks = 4, .tp_size = 2, .num_experts = 6, .top_k = 2, .hidden = 16, .max_tokens = 3},
                 num_iterations() / 4);
}

TEST(NvlinkReuse, CallsAcrossTheCrossoverToManyTokensNeverMixEpochs) {
  run_many_times({.num_ranks = 3, .num_experts = 12, .top_k = 4, .hidden = 16, .max_tokens = 400},
                 num_iterations() / 60);
}

}  // namespace
}  // namespace moelink::test
