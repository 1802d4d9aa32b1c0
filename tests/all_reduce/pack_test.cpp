// The pack kernel on the host, block by block, with epochs that a test sets: what calls of an AllReduce would take
// hours to come to, and sequences of algorithms that no size chooses there.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "all_reduce/kernels.hpp"
#include "all_reduce/plan.hpp"
#include "all_reduce/sum_check.hpp"
#include "moelink/buffer.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "support/fewer.hpp"

namespace moelink {
namespace {

using testing::addend;

Buffer zeroed(std::size_t size_bytes) {
  Buffer buffer(Device::host(), size_bytes);
  std::fill_n(buffer.as<std::byte>(), size_bytes, std::byte{0});
  return buffer;
}

class PackOfTwoRanks : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMostElements = kPackSlotBytes * 4 / 4;  // of fp32: of four blocks

  PackOfTwoRanks() {
    const AllReduceSpec spec = pack_spec(Element::float32, 2);
    for (Rank& rank : ranks_) {
      rank.shared = zeroed(static_cast<std::size_t>(AllReduceLayout::of(spec).total_bytes));
      rank.epochs = zeroed(AllReduceEpochs::kNumWords * sizeof(u64));
    }
  }

  void set_epochs(u64 epoch) {
    for (Rank& rank : ranks_) {
      std::fill_n(rank.epochs.as<u64>(), AllReduceEpochs::kNumWords, epoch);
    }
  }
  [[nodiscard]] u64 pack_epoch() { return ranks_[0].epochs.as<u64>()[AllReduceEpochs::kPack * kEpochLanes]; }

  /// How many lines carry this tag, at both ranks.
  [[nodiscard]] int lines_with(u32 tag) {
    int found = 0;
    for (Rank& rank : ranks_) {
      const Vec16* lines = reinterpret_cast<const Vec16*>(
          rank.shared.as<std::byte>() + AllReduceLayout::of(pack_spec(Element::float32, 2)).pack_lines.offset_bytes);
      found += static_cast<int>(
          std::count_if(lines, lines + num_pack_lines(2), [&](const Vec16& line) { return line.w == tag; }));
    }
    return found;
  }

  /// One call on both ranks; the second one comes so much later. How many sums are wrong.
  std::int64_t call(AllReduceAlgorithm algorithm, std::int64_t num_elements, std::chrono::milliseconds late = {},
                    int blocks = 4) {
    ++call_;
    std::array<std::int64_t, 2> wrong{};
    const auto play = [&](int rank) {
      if (rank == 1) std::this_thread::sleep_for(late);
      wrong[static_cast<std::size_t>(rank)] = sum_on(rank, algorithm, num_elements, blocks);
    };
    std::jthread other(play, 1);
    play(0);
    other.join();
    return wrong[0] + wrong[1];
  }

  /// Calls that follow one another without the ranks' threads meeting in between.
  template <class CountOf>
  std::int64_t many_calls(int calls, CountOf&& count_of) {
    std::array<std::int64_t, 2> wrong{};
    const int first = call_ + 1;
    call_ += calls;
    const auto play = [&](int rank) {
      for (int i = 0; i < calls; ++i) {
        const auto [algorithm, count] = count_of(i);
        wrong[static_cast<std::size_t>(rank)] += sum_on(rank, algorithm, count, 4, first + i);
      }
    };
    std::jthread other(play, 1);
    play(0);
    other.join();
    return wrong[0] + wrong[1];
  }

 private:
  struct Rank {
    Buffer shared, epochs;
  };

  std::int64_t sum_on(int rank, AllReduceAlgorithm algorithm, std::int64_t num_elements, int blocks, int call = 0) {
    call = call == 0 ? call_ : call;
    const AllReducePlan plan = plan_all_reduce({.num_ranks = 2,
                                                .element = Element::float32,
                                                .max_pack_blocks = blocks,
                                                .max_staged_blocks = blocks,
                                                .only = algorithm},
                                               num_elements);
    std::vector<float> data(static_cast<std::size_t>(num_elements));  // summed in place
    for (std::int64_t i = 0; i < num_elements; ++i) data[static_cast<std::size_t>(i)] = addend(rank, call, i);
    AllReduceKernelArgs args{.input = data.data(),
                             .output = data.data(),
                             .num_elements = num_elements,
                             .length_key = length_key(num_elements),
                             .num_steps = plan.num_steps,
                             .chunk_vectors = plan.chunk_vectors,
                             .window = {.rank = rank, .num_ranks = 2},
                             .block_epochs = ranks_[static_cast<std::size_t>(rank)].epochs.as<u64>(),
                             .fault = {.rank = rank}};
    for (const std::size_t r : {0U, 1U}) args.window.inline_bases[r] = ranks_[r].shared.as<u8>();
    for (int block = 0; block < plan.grid; ++block) {
      alignas(128) StreamScratch scratch{};
      EXPECT_TRUE(algorithm != AllReduceAlgorithm::pack || plan.chunk_vectors * 16 <= kPackSlotBytes) << num_elements;
      run(algorithm, HostExec(block, plan.grid, &scratch), args);
    }
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < num_elements; ++i) {
      wrong += data[static_cast<std::size_t>(i)] == addend(0, call, i) + addend(1, call, i) ? 0 : 1;
    }
    return wrong;
  }

  static void run(AllReduceAlgorithm algorithm, const HostExec& ex, const AllReduceKernelArgs& args) {
    const AllReduceSpec spec = stream_spec(Element::float32, 2);
    const Runtime<AllReduceSpec> runtime(spec);
    switch (algorithm) {
      case AllReduceAlgorithm::push:
        return AllReducePush::run(ex, runtime, args);
      case AllReduceAlgorithm::pack:
        return AllReducePack::run(ex, runtime, args);
      case AllReduceAlgorithm::stream:
        return AllReduceStream::run(ex, runtime, args);
      default:
        return AllReduceTwoShot::run(ex, runtime, args);
    }
  }

  std::array<Rank, 2> ranks_;
  int call_ = 0;
};

constexpr std::int64_t kGroupElements = kPackGroupVectors * 4;
constexpr auto kPack = AllReduceAlgorithm::pack;

TEST_F(PackOfTwoRanks, EveryLengthAroundAGroupsEndsIsSummed) {
  for (std::int64_t count = 1; count <= 2 * kGroupElements + 9; count += count % kGroupElements > 140 ? 37 : 1) {
    EXPECT_EQ(call(kPack, count), 0) << count;
  }
  EXPECT_EQ(call(kPack, kMostElements), 0);
  EXPECT_EQ(call(kPack, kMostElements - 1), 0);
}

/// A line that a long call has left must be gone when a call of the same length has the same epoch bits, 2^15 later,
/// though the calls in between were short.
TEST_F(PackOfTwoRanks, LinesWhoseEpochBitsComeAgainHaveBeenRenewed) {
  for (const u64 first : {u64{0x7ffe}, (u64{1} << 40) + 1}) {
    set_epochs(first);
    ASSERT_EQ(call(kPack, kMostElements), 0);
    const u32 tag = LineTag::of(first + 1, length_key(kMostElements));
    ASSERT_EQ(lines_with(tag), 2 * 4 * kPackSlotPacks * kPackLines) << "at both ranks, in four blocks";
    EXPECT_EQ(many_calls(2 * kPackSlotPacks, [](int) { return std::pair(kPack, 3 * kGroupElements + 1); }), 0);
    ASSERT_EQ(pack_epoch(), first + 1 + 2 * kPackSlotPacks);
    EXPECT_EQ(lines_with(tag), 0);
    set_epochs(first + (u64{LineTag::kEpochMask} + 1));
    EXPECT_EQ(call(kPack, kMostElements, std::chrono::milliseconds(30)), 0) << "after epoch " << first;
  }
}

TEST_F(PackOfTwoRanks, TagsWrapAroundInTheMiddleOfCallsOfChangingLengths) {
  std::mt19937 random(3);
  std::vector<std::int64_t> counts(600 / test::kFewer);
  for (std::int64_t& count : counts) count = 1 + static_cast<std::int64_t>(random() % (6 * kGroupElements));
  set_epochs(u64{LineTag::kEpochMask} - 200);
  EXPECT_EQ(many_calls(static_cast<int>(counts.size()),
                       [&](int i) { return std::pair(kPack, counts[static_cast<std::size_t>(i)]); }),
            0);
}

TEST_F(PackOfTwoRanks, RenewalOverTheWholeSlotNeverTouchesPacksOfTheCall) {
  EXPECT_EQ(many_calls(2 * kPackSlotPacks + 2, [](int i) { return std::pair(kPack, (1 + i % 40) * 97); }), 0);
}

TEST_F(PackOfTwoRanks, SequencesOfAllAlgorithmsInOneMemoryAreSummed) {
  constexpr std::array kAlgorithms = {AllReduceAlgorithm::push, kPack, AllReduceAlgorithm::stream,
                                      AllReduceAlgorithm::two_shot};
  std::mt19937 random(5);
  std::vector<std::pair<AllReduceAlgorithm, std::int64_t>> calls(400 / test::kFewer);
  for (auto& [algorithm, count] : calls) {
    algorithm = kAlgorithms[random() % kAlgorithms.size()];
    count = 1 + static_cast<std::int64_t>(random() % (algorithm == AllReduceAlgorithm::push ? 3000 : 33'000));
  }
  EXPECT_EQ(many_calls(static_cast<int>(calls.size()), [&](int i) { return calls[static_cast<std::size_t>(i)]; }), 0);
}

TEST(PackLines, CarryEveryWordOfThreeVectorsAndTheTagInEach) {
  Pack pack{};
  u32 next = 1;
  for (Vec16& vector : pack.vectors) vector = {next, next + 1, next + 2, next + 3}, next += 4;
  PackLines lines = PackLines::of(pack, 99);
  EXPECT_EQ(lines.found_tag(99), 99U);
  const Pack back = lines.pack();
  next = 1;
  for (const Vec16& vector : back.vectors) {
    for (const u32 word : {vector.x, vector.y, vector.z, vector.w}) EXPECT_EQ(word, next++);
  }
  for (Vec16& line : lines.lines) {
    line.w = 98;
    EXPECT_EQ(lines.found_tag(99), 98U) << "one line of another call";
    line.w = 99;
  }
}

}  // namespace
}  // namespace moelink
