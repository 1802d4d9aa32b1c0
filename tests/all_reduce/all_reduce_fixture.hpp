// Ranks of one process that all-reduce on one device, and what they should get.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "moelink/all_reduce.hpp"
#include "moelink/buffer.hpp"
#include "reference/all_reduce.hpp"

namespace moelink::test {

using Bytes = std::vector<std::byte>;

/// Random values, on request with the ones that sentinels break strewn in: -0, subnormals, NaN, Inf.
inline Bytes random_elements(DataType type, std::int64_t count, std::mt19937_64& random, bool with_specials) {
  Bytes bytes(static_cast<std::size_t>(count) * size_of(type));
  std::normal_distribution<float> normal(0.0F, 3.0F);
  const float specials[] = {-0.0F, 1e-40F, -1e-7F, HUGE_VALF, std::nanf(""), 65504.0F};
  for (std::int64_t i = 0; i < count; ++i) {
    const bool special = with_specials && random() % 16 == 0;
    reference::store(bytes.data(), type, i, special ? specials[random() % 6] : normal(random));
  }
  return bytes;
}

/// Bit for bit; any NaN equals any NaN.
inline void expect_same_elements(const Bytes& got, const Bytes& expected, DataType type, const std::string& where) {
  ASSERT_EQ(got.size(), expected.size());
  std::int64_t wrong = 0;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size() / size_of(type)); ++i) {
    if (!reference::same(got.data(), expected.data(), type, i)) {
      first = wrong++ == 0 ? i : first;
    }
  }
  EXPECT_EQ(wrong, 0) << where << ": first wrong element " << first << " is "
                      << reference::load(got.data(), type, first) << ", expected "
                      << reference::load(expected.data(), type, first);
}

/// One rank's side: its object, stream and memory.
struct AllReduceRank {
  AllReduce all_reduce;
  Stream stream;
  Buffer input;
  Buffer output;
};

class AllReduceGroup {
 public:
  AllReduceGroup(int num_ranks, Device device, const AllReduceConfig& config, int host_threads = 1)
      : device_(device), config_(config), communicators_(Communicator::in_process(num_ranks, in_process_on(device))) {
    const auto size_bytes = static_cast<std::size_t>(config.max_elements) * size_of(config.type) + 64;
    ranks_ = on_every_rank(communicators_, [&](const Communicator& communicator) {
      return AllReduceRank{AllReduce(communicator, config), Stream(device, {.num_threads = host_threads}),
                           Buffer(device, size_bytes), Buffer(device, size_bytes)};
    });
  }

  static InProcessOptions in_process_on(Device device) {
    return {.devices = device.is_host() ? std::vector<int>{} : std::vector<int>{device.ordinal()},
            .deadline = std::chrono::seconds(20)};
  }

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] AllReduceRank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Communicator& communicator(int r) const { return communicators_[static_cast<std::size_t>(r)]; }

  /// Sums fresh random data of `count` elements, `offset` elements into the buffers, and compares on every rank.
  void run_and_check(std::int64_t count, std::mt19937_64& random, std::int64_t offset = 0, bool in_place = false,
                     bool with_specials = true) {
    std::vector<Bytes> inputs;
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(random_elements(config_.type, count, random, with_specials));
    }
    const std::size_t skip = static_cast<std::size_t>(offset) * size_of(config_.type);
    for (int r = 0; r < size(); ++r) {
      AllReduceRank& mine = rank(r);
      fill_bytes(mine.output.data(), 0xa5, mine.output.size_bytes(), mine.stream);  // poison
      std::byte* input = mine.input.as<std::byte>() + skip;
      copy_bytes(input, inputs[static_cast<std::size_t>(r)].data(), inputs[static_cast<std::size_t>(r)].size(),
                 mine.stream);
      mine.stream.synchronize();
    }
    for (int r = 0; r < size(); ++r) {
      AllReduceRank& mine = rank(r);
      std::byte* input = mine.input.as<std::byte>() + skip;
      std::byte* output = in_place ? input : mine.output.as<std::byte>() + skip;
      mine.all_reduce({.input = input, .output = output, .num_elements = count}, mine.stream);
    }
    const Bytes expected = reference::all_reduce(inputs, config_.type);
    for (int r = 0; r < size(); ++r) {
      AllReduceRank& mine = rank(r);
      Bytes got(expected.size());
      copy_bytes(got.data(), (in_place ? mine.input : mine.output).as<std::byte>() + skip, got.size(), mine.stream);
      mine.stream.synchronize();
      mine.all_reduce.check();
      expect_same_elements(got, expected, config_.type,
                           mine.all_reduce.describe_plan(count) + " rank " + std::to_string(r));
    }
  }

 private:
  Device device_;
  AllReduceConfig config_;
  std::vector<Communicator> communicators_;
  std::vector<AllReduceRank> ranks_;
};

}  // namespace moelink::test
