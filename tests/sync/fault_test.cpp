// Bounded waits: a wait ends by what it waits for, by its deadline, by a fault elsewhere, or because the host gives up,
// and the first fault is the one that is told.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/fault.hpp"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink {
namespace {

constexpr u64 kShortNs = 5'000'000;
constexpr u64 kLongNs = 60'000'000'000;

double seconds_of(const auto& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The fault state of one rank.
struct RankState {
  u64 word = 0;
  FaultRecord record{};
};

TEST(WaitUntil, AValueThatIsThereIsEnoughEvenAfterAFault) {
  u64 flag = 7;
  u64 fault_word = FaultWord{FaultKind::peer_fault}.packed(true);
  const FaultContext context{.word = &fault_word};
  EXPECT_TRUE(wait_until_reached_sys(context, {.expected = 7}, &flag));
}

TEST(WaitUntil, CarriesThePayloadAcrossThreads) {
  constexpr int kRounds = 2000;
  u64 flag = 0;
  u64 answer = 0;
  std::array<int, 4> payload{};  // plain memory: ordered by the flag alone
  std::thread reader([&] {
    for (u64 epoch = 1; epoch <= kRounds; ++epoch) {
      ASSERT_TRUE(wait_until_reached_sys(FaultContext{}, {.expected = epoch}, &flag));
      for (const int value : payload) {
        ASSERT_EQ(value, static_cast<int>(epoch));
      }
      st_release_sys(&answer, epoch);
    }
  });
  for (u64 epoch = 1; epoch <= kRounds; ++epoch) {
    payload.fill(static_cast<int>(epoch));
    st_release_sys(&flag, epoch);
    EXPECT_TRUE(wait_until_reached_sys(FaultContext{}, {.expected = epoch}, &answer));
  }
  reader.join();
}

TEST(WaitUntil, AnExpiredWaitReturnsAndTellsWhoWaitedForWhatWhereAndHowLong) {
  RankState state;
  u64 flag = 16;
  const FaultContext context{.word = &state.word, .record = &state.record, .rank = 2, .timeout_ns = kShortNs};
  const WaitFor what{.phase = FaultPhase::dispatch_receive, .peer = 3, .epoch = 17, .expected = 18};
  EXPECT_FALSE(wait_until_reached_sys(context, what, &flag));
  const auto fault = read_fault(state.record);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->fault.kind, FaultKind::wait_expired);
  EXPECT_GT(fault->waited_ns, kShortNs);
  const std::string sentence = to_string(*fault);
  EXPECT_NE(sentence.find("rank 2 waited 0.0"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("for rank 3 in dispatch_receive of epoch 17: expected 18, saw 16"), std::string::npos)
      << sentence;
  EXPECT_EQ(error_of(*fault).code(), ErrorCode::timeout);
}

TEST(WaitUntil, IsBoundedAlsoWhenNobodyListens) {
  u64 flag = 0;
  EXPECT_FALSE(wait_until_reached_gpu(FaultContext{.timeout_ns = kShortNs}, {.expected = 1}, &flag));
}

TEST(WaitUntil, SixtyWaitsAfterAFaultDoNotWaitSixtyDeadlines) {
  RankState state;
  state.word = FaultWord{FaultKind::wait_expired}.packed(true);
  const FaultContext context{.word = &state.word, .record = &state.record, .timeout_ns = kLongNs};
  u64 flag = 0;
  const double seconds = seconds_of([&] {
    for (int i = 0; i < 60; ++i) {
      EXPECT_FALSE(wait_until_reached_sys(context, {.expected = 1}, &flag));
    }
  });
  EXPECT_LT(seconds, 5.0);
}

TEST(Fault, TheFirstOneIsKeptAndLaterOnesAreNot) {
  RankState state;
  const FaultContext context{.word = &state.word, .record = &state.record, .rank = 1};
  report_fault(context, FaultKind::wait_expired, {.phase = FaultPhase::all_reduce_stream, .peer = 5, .epoch = 3}, 1, 2);
  report_fault(context, FaultKind::out_of_order, {.phase = FaultPhase::combine_send, .peer = 6, .epoch = 9}, 3, 4);
  const auto fault = read_fault(state.record);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->fault.kind, FaultKind::wait_expired);
  EXPECT_EQ(fault->fault.peer, 5);
  EXPECT_EQ(fault->epoch, 3U);
  EXPECT_EQ(FaultWord::unpacked(state.word).kind, FaultKind::wait_expired);
}

TEST(Fault, APeersFaultThatCameFirstIsDescribedByWhoeverWouldReportAnother) {
  RankState state;
  state.word = FaultWord{FaultKind::peer_fault, FaultPhase::all_reduce_push, 3, 1}.packed(false);
  const FaultContext context{.word = &state.word, .record = &state.record, .rank = 1};
  report_fault(context, FaultKind::wait_expired, {.phase = FaultPhase::all_reduce_push, .peer = 0, .epoch = 2}, 1, 9);
  const auto fault = read_fault(state.record);
  ASSERT_TRUE(fault.has_value()) << "the kernel left, and its host would see nothing";
  EXPECT_EQ(fault->fault.kind, FaultKind::peer_fault);
  EXPECT_EQ(fault->fault.rank, 3);
}

TEST(Fault, MismatchIsOneOnEveryRankAndNamesTheLengthWhereItIsKnown) {
  RankState first;
  RankState second;
  u64* const peers[] = {&second.word};
  const FaultContext context{
      .word = &first.word, .record = &first.record, .peer_words = peers, .num_peers = 1, .rank = 0};
  const WaitFor what{.phase = FaultPhase::all_reduce_push, .peer = 1, .epoch = 3, .expected = 1000};
  report_fault(context, FaultKind::mismatch, what, 0, 0);
  EXPECT_TRUE(notice_fault({.word = &second.word, .record = &second.record, .rank = 1}, {.epoch = 3}, 0, 0));
  EXPECT_EQ(to_string(*read_fault(first.record)),
            "rank 0 and rank 1 passed different lengths to all_reduce_push of epoch 3 (rank 0: 1000 elements); every "
            "rank must pass the same");
  EXPECT_EQ(to_string(*read_fault(second.record)),
            "rank 0 and rank 1 passed different lengths to all_reduce_push of epoch 3; every rank must pass the same");
  EXPECT_EQ(error_of(*read_fault(second.record)).code(), ErrorCode::mismatch);
}

TEST(Fault, MismatchInCombineIsOneOfTypesNotOfLengths) {
  RankState first;
  const FaultContext context{.word = &first.word, .record = &first.record, .rank = 0};
  report_fault(context, FaultKind::mismatch,
               {.phase = FaultPhase::combine_receive, .peer = 1, .epoch = 3, .expected = 1}, 3, 0);
  const std::string said = to_string(*read_fault(first.record));
  EXPECT_EQ(said.find("length"), std::string::npos) << said;
  EXPECT_NE(said.find("rank 1 gave expert outputs of another type than rank 0"), std::string::npos) << said;
  EXPECT_NE(said.find("bf16 expected, fp32 found"), std::string::npos) << said;
}

TEST(Fault, ManyThreadsThatReportAtOnceDescribeOneFaultWhole) {
  for (int round = 0; round < 50; ++round) {
    RankState state;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&state, i] {
        const FaultContext context{.word = &state.word, .record = &state.record, .rank = 0};
        const auto number = static_cast<u64>(i);
        report_fault(context, FaultKind::wait_expired, {.peer = i, .epoch = number, .expected = number}, number,
                     number);
      });
    }
    std::optional<FaultRecord> fault;
    while (!fault.has_value()) {
      fault = read_fault(state.record);
      std::this_thread::yield();
    }
    const auto winner = static_cast<u64>(fault->fault.peer);
    EXPECT_TRUE(fault->epoch == winner && fault->expected == winner && fault->seen == winner);
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

TEST(Fault, ReachesPeersWhoseWaitsEndAndWhoKnowWhoseFaultItWas) {
  std::array<RankState, 3> ranks;
  std::array<std::array<u64*, 2>, 3> peers{};
  std::array<FaultContext, 3> contexts{};
  for (std::size_t i = 0; i < 3; ++i) {
    peers[i] = {&ranks[(i + 1) % 3].word, &ranks[(i + 2) % 3].word};
    contexts[i] = {.word = &ranks[i].word,
                   .record = &ranks[i].record,
                   .peer_words = peers[i].data(),
                   .num_peers = 2,
                   .rank = static_cast<i32>(i),
                   .timeout_ns = i == 0 ? kShortNs : kLongNs};
  }
  u64 never = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_FALSE(
          wait_until_reached_sys(contexts[i], {.phase = FaultPhase::peer_barrier, .peer = 2, .expected = 1}, &never));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ASSERT_TRUE(read_fault(ranks[0].record).has_value());
  EXPECT_EQ(error_of(*read_fault(ranks[0].record)).code(), ErrorCode::timeout);
  for (std::size_t i = 1; i < 3; ++i) {
    const auto fault = read_fault(ranks[i].record);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->fault.kind, FaultKind::peer_fault);
    EXPECT_EQ(fault->fault.rank, 0);
    EXPECT_EQ(fault->rank, static_cast<i32>(i));
    EXPECT_EQ(error_of(*fault).code(), ErrorCode::peer);
    EXPECT_NE(to_string(*fault).find("rank 0 reported a fault in peer_barrier"), std::string::npos);
  }
}

TEST(Fault, AnAbortOfTheHostEndsAWait) {
  RankState state;
  u64 never = 0;
  const FaultContext context{.word = &state.word, .record = &state.record, .rank = 1, .timeout_ns = kLongNs};
  std::thread waiter([&] { EXPECT_FALSE(wait_until_reached_sys(context, {.expected = 1}, &never)); });
  request_abort(state.record);
  waiter.join();
  ASSERT_TRUE(read_fault(state.record).has_value());
  EXPECT_EQ(error_of(*read_fault(state.record)).code(), ErrorCode::aborted);
}

TEST(Fault, WordsKeepWhatIsPackedIntoThem) {
  for (const i32 rank : {0, 1, 255, 256, 32767}) {
    for (const i32 peer : {-1, 0, 300}) {
      for (const bool described : {false, true}) {
        const FaultWord word{FaultKind::link_broken, FaultPhase::proxy, rank, peer};
        const u64 packed = word.packed(described);
        EXPECT_NE(packed, 0U);
        EXPECT_EQ((packed & FaultWord::kDescribed) != 0, described);
        const FaultWord back = FaultWord::unpacked(packed);
        EXPECT_EQ(back.kind, word.kind);
        EXPECT_EQ(back.phase, word.phase);
        EXPECT_EQ(back.rank, rank);
        EXPECT_EQ(back.peer, peer);
      }
    }
  }
}

}  // namespace
}  // namespace moelink
