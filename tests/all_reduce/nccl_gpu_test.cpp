// All-reduce by the real NCCL, where there are devices.
#include <gtest/gtest.h>

#include "all_reduce/all_reduce_fixture.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

/// With integers and few ranks every order of summation gives the same bits.
void fill_with_integers(AllReduceRank& rank, int value, std::int64_t count) {
  const std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(value));
  copy_bytes(rank.input.data(), values.data(), values.size() * sizeof(float), rank.stream);
  rank.stream.synchronize();
}

void expect_sum(AllReduceRank& rank, float sum, std::int64_t count) {
  std::vector<float> got(static_cast<std::size_t>(count));
  copy_bytes(got.data(), rank.output.data(), got.size() * sizeof(float), rank.stream);
  rank.stream.synchronize();
  rank.all_reduce.check();
  EXPECT_EQ(got, std::vector<float>(got.size(), sum));
}

class AllReduceByNccl : public testing::TestWithParam<int> {};

TEST_P(AllReduceByNccl, SumsEagerlyAndInReplayedGraphs) {
  const int num_ranks = GetParam();
  if (Device::cuda_count() < num_ranks) {
    GTEST_SKIP() << "needs " << num_ranks << " CUDA devices; found " << Device::cuda_count();
  }
  constexpr std::int64_t kCount = 100'000;
  InProcessOptions options{.devices = {}, .deadline = std::chrono::seconds(30)};
  for (int r = 0; r < num_ranks; ++r) {
    options.devices.push_back(r);
  }
  const auto communicators = Communicator::in_process(num_ranks, options);
  on_every_rank(communicators, [&](const Communicator& communicator) {
    const Device device = communicator.device();
    AllReduceRank rank{AllReduce(communicator, {.type = DataType::float32,
                                                .max_elements = kCount,
                                                .deterministic = false,
                                                .algorithm = AllReduceAlgorithm::nccl}),
                       Stream(device), Buffer(device, kCount * 4), Buffer(device, kCount * 4)};
    EXPECT_EQ(rank.all_reduce.describe_plan(kCount).substr(0, 6), "nccl 2");
    const AllReduceArgs args{.input = rank.input.data(), .output = rank.output.data(), .num_elements = kCount};
    fill_with_integers(rank, communicator.rank() + 1, kCount);
    communicator.barrier();
    const float sum = static_cast<float>(num_ranks * (num_ranks + 1)) / 2;
    rank.all_reduce(args, rank.stream);
    expect_sum(rank, sum, kCount);
    const Graph graph = Graph::record(rank.stream, [&] { rank.all_reduce(args, rank.stream); });
    fill_bytes(rank.output.data(), 0, kCount * 4, rank.stream);
    communicator.barrier();
    for (int replay = 0; replay < 10; ++replay) {
      graph.launch(rank.stream);
    }
    expect_sum(rank, sum, kCount);
    communicator.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceByNccl, testing::Values(1, 2),
                         [](const auto& tested) { return std::to_string(tested.param) + "_ranks"; });

TEST(AllReduceByNcclOnOneGpu, RanksThatShareItAreRefusedInWords) {
  if (Device::cuda_count() == 0) {
    GTEST_SKIP() << "needs a CUDA device; none was found";
  }
  const auto communicators = Communicator::in_process(2, {.devices = {0}});
  on_every_rank(communicators, [](const Communicator& communicator) {
    try {
      const AllReduce all_reduce(communicator,
                                 {.max_elements = 64, .deterministic = false, .algorithm = AllReduceAlgorithm::nccl});
      ADD_FAILURE() << "was constructed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("ranks 0 and 1 share a GPU"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace moelink::test
