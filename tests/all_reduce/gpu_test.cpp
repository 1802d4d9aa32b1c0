// All-reduce on a GPU: several ranks share one device.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "all_reduce/all_reduce_fixture.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

class OnOneGpu : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

TEST_P(OnOneGpu, EveryAlgorithmSumsOddLengthsAndOffsetsExactly) {
  std::mt19937_64 random(13);
  for (const AllReduceAlgorithm algorithm :
       {AllReduceAlgorithm::push, AllReduceAlgorithm::pack, AllReduceAlgorithm::stream, AllReduceAlgorithm::two_shot,
        AllReduceAlgorithm::automatic}) {
    if (algorithm == AllReduceAlgorithm::pack && GetParam() > 2) continue;
    for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
      const std::int64_t most = algorithm == AllReduceAlgorithm::push   ? 12'000
                                : algorithm == AllReduceAlgorithm::pack ? 500'000
                                                                        : 6'000'000;
      AllReduceGroup group(GetParam(), Device::cuda(0), {.type = type, .max_elements = most, .algorithm = algorithm});
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2049}, std::int64_t{12'000}, most}) {
        group.run_and_check(count, random, /*offset=*/count % 3, /*in_place=*/count % 2 == 0);
      }
    }
  }
}

TEST_P(OnOneGpu, ReplayedGraphsWithAnOddNumberOfCallsKeepTheirEpochs) {
  std::mt19937_64 random(17);
  AllReduceGroup group(GetParam(), Device::cuda(0), {.type = DataType::float32, .max_elements = 600'000});
  constexpr std::int64_t kCounts[] = {1000, 120'000, 600'000};  // of two ranks push, pack, stream; of more two-shot
  std::vector<Graph> graphs;
  for (int r = 0; r < group.size(); ++r) {
    AllReduceRank& rank = group.rank(r);
    graphs.push_back(Graph::record(rank.stream, [&] {
      for (const std::int64_t count : kCounts) {
        rank.all_reduce({.input = rank.input.data(), .output = rank.output.data(), .num_elements = count}, rank.stream);
      }
    }));
  }
  for (int replay = 0; replay < 1000; ++replay) {
    for (int r = 0; r < group.size(); ++r) {
      graphs[static_cast<std::size_t>(r)].launch(group.rank(r).stream);
    }
    if (replay % 100 == 99) {
      group.run_and_check(1 + replay * 199, random, 0, false, false);  // outside the graph, on the same epochs
    }
  }
  for (int r = 0; r < group.size(); ++r) {
    group.rank(r).stream.synchronize();
    group.rank(r).all_reduce.check();
  }
}

TEST_P(OnOneGpu, EveryTailLengthOfAPackIsSummedExactly) {
  if (GetParam() > 2) {
    GTEST_SKIP() << "pack is for two ranks";
  }
  std::mt19937_64 random(19);
  AllReduceGroup group(GetParam(), Device::cuda(0), {.max_elements = 4000, .algorithm = AllReduceAlgorithm::pack});
  for (std::int64_t count = 1; count < 4000; count += count < 40 || (count > 760 && count < 780) ? 1 : 61) {
    group.run_and_check(count, random, /*offset=*/count % 9, /*in_place=*/count % 2 == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduce, OnOneGpu, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& tested) { return std::to_string(tested.param) + "_ranks"; });

TEST(AllReduceOnOneGpu, RankThatNeverCallsEndsTheOtherWithATimeout) {
  if (Device::cuda_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const Device device = Device::cuda(0);
  const auto communicators = Communicator::in_process(2, {.devices = {0}, .deadline = std::chrono::milliseconds(500)});
  std::vector<AllReduce> objects = on_every_rank(
      communicators, [](const Communicator& communicator) { return AllReduce(communicator, {.max_elements = 64}); });
  const Buffer memory(device, 256);
  const Stream stream(device);
  objects[0]({.input = memory.data(), .output = memory.data(), .num_elements = 64}, stream);
  stream.synchronize();  // the kernel left in good order: the context survives
  EXPECT_THROW(objects[0].check(), Error);
  EXPECT_THROW(objects[0]({.input = memory.data(), .output = memory.data(), .num_elements = 64}, stream), Error);
}

}  // namespace
}  // namespace moelink::test
