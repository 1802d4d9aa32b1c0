// The same algorithm for g++: blocks are threads.
#include <cstdio>
#include <thread>
#include <vector>

#include "moelink/device/exec/host_exec.hpp"
#include "two_phase_sum.cuh"

int main() {
  constexpr int kBlocks = 4;
  std::vector<moelink::u32> input(10000);
  moelink::u64 expected = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<moelink::u32>(i % 1000);
    expected += input[i];
  }
  moelink::u64 sum = 0;
  std::vector<moelink::u64> totals(kBlocks);
  moelink::GridBarrierWord barrier{0};
  const TwoPhaseSum args{input.data(), static_cast<int>(input.size()), &sum, totals.data(), &barrier};
  for (int launch = 0; launch < 20; ++launch) {
    std::vector<std::thread> blocks;
    for (int block = 0; block < kBlocks; ++block) {
      blocks.emplace_back([&args, block] { two_phase_sum(moelink::HostExec(block, kBlocks, nullptr), args); });
    }
    for (std::thread& block : blocks) {
      block.join();
    }
    for (const moelink::u64 total : totals) {
      if (total != expected) {
        std::fprintf(stderr, "launch %d: %lu instead of %lu\n", launch, total, expected);
        return 1;
      }
    }
  }
  std::printf("20 launches of %d blocks: right\n", kBlocks);
  return 0;
}
