// NcclGroup over a fake NCCL: what is waited for, for how long, and what is given back.
#include <gtest/gtest.h>

#include "all_reduce/nccl_all_reduce.hpp"

#if MOELINK_HAVE_NCCL

#include <atomic>
#include <chrono>
#include <thread>

#include "all_reduce/nccl_group.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// One communicator, whose answers a test chooses. NCCL's functions have no argument that could lead to it.
struct FakeNccl {
  std::atomic<ncclResult_t> init_result{ncclInProgress};
  std::atomic<ncclResult_t> all_reduce_result{ncclInProgress};
  std::atomic<ncclResult_t> finalize_result{ncclInProgress};
  std::atomic<int> polls_in_progress{3};  ///< states that say "in progress" before `state`; negative: for ever
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<int> num_finalized{0};
  std::atomic<int> num_destroyed{0};
  std::atomic<int> num_aborted{0};
  int blocking = -1;
  bool hangs_at_the_end = false;  ///< finalize never gets done

  static FakeNccl* current;
  FakeNccl() { current = this; }
  FakeNccl(const FakeNccl&) = delete;
  ~FakeNccl() { current = nullptr; }

  static ncclComm_t comm() { return reinterpret_cast<ncclComm_t>(current); }

  [[nodiscard]] static NcclLibrary library() {
    NcclLibrary nccl;
    nccl.get_error_string = [](ncclResult_t result) {
      return result == ncclRemoteError ? "remote process exited" : "some error";
    };
    nccl.comm_init_rank_config = [](ncclComm_t* made, int, ncclUniqueId, int, ncclConfig_t* config) {
      *made = comm();
      current->blocking = config->blocking;
      return current->init_result.load();
    };
    nccl.comm_get_async_error = [](ncclComm_t, ncclResult_t* state) {
      const int left = current->polls_in_progress.load();
      *state = left != 0 ? ncclInProgress : current->state.load();
      if (left > 0) {
        current->polls_in_progress = left - 1;
      }
      return ncclSuccess;
    };
    nccl.comm_finalize = [](ncclComm_t) {
      ++current->num_finalized;
      if (current->hangs_at_the_end) {
        current->polls_in_progress = -1;
      }
      return current->finalize_result.load();
    };
    nccl.comm_destroy = [](ncclComm_t) {
      ++current->num_destroyed;
      return ncclSuccess;
    };
    nccl.comm_abort = [](ncclComm_t) {
      ++current->num_aborted;
      return ncclSuccess;
    };
    nccl.all_reduce = [](const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
      return current->all_reduce_result.load();
    };
    return nccl;
  }
};
FakeNccl* FakeNccl::current = nullptr;

TEST(NcclLibrary, WhatIsInstalledHasEveryFunctionOfTheTable) {
  try {
    EXPECT_EQ(NcclLibrary::get().version().substr(0, 2), "2.");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(std::string(error.what()).find("lacks"), std::string::npos) << error.what();
    GTEST_SKIP() << error.what();
  }
}

NcclGroup::Membership member(
    std::chrono::milliseconds deadline, std::function<void()> check = [] {}) {
  return {.rank = 1, .size = 2, .id = {}, .deadline = deadline, .check = std::move(check)};
}

template <class Body>
void expect_error(ErrorCode code, const std::string& word, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown; expected " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(NcclGroup, IsNonBlockingAndEndsWithFinalizeThenDestroy) {
  FakeNccl fake;
  const NcclLibrary library = FakeNccl::library();
  {
    NcclGroup group(library, member(10s));
    EXPECT_EQ(fake.blocking, 0);
    fake.polls_in_progress = 3;
    group.all_reduce(nullptr, nullptr, 1, ncclFloat32, nullptr);
    EXPECT_EQ(fake.polls_in_progress, 0) << "the call returned before NCCL had enqueued it";
    EXPECT_FALSE(group.error());
  }
  EXPECT_EQ(fake.num_finalized, 1);
  EXPECT_EQ(fake.num_destroyed, 1);
  EXPECT_EQ(fake.num_aborted, 0);
}

TEST(NcclGroup, RankThatNeverJoinsIsATimeoutAndTheCommunicatorIsAborted) {
  FakeNccl fake;
  fake.polls_in_progress = -1;
  const NcclLibrary library = FakeNccl::library();
  const auto start = Clock::now();
  expect_error(ErrorCode::timeout, "rank 1 waited 50 ms", [&] { NcclGroup(library, member(50ms)); });
  EXPECT_GE(Clock::now() - start, 50ms);
  EXPECT_EQ(fake.num_aborted, 1);
  EXPECT_EQ(fake.num_destroyed, 0);
}

TEST(NcclGroup, FailureOnTheWayUpHasNcclsWordsAndLeavesNothing) {
  FakeNccl fake;
  fake.state = ncclRemoteError;
  const NcclLibrary library = FakeNccl::library();
  expect_error(ErrorCode::peer, "remote process exited", [&] { NcclGroup(library, member(10s)); });
  EXPECT_EQ(fake.num_aborted, 1);
}

TEST(NcclGroup, FaultOfTheGroupEndsTheWaitLongBeforeTheDeadline) {
  FakeNccl fake;
  fake.polls_in_progress = -1;
  const NcclLibrary library = FakeNccl::library();
  expect_error(ErrorCode::aborted, "rank 0 gave up",
               [&] { NcclGroup(library, member(1h, [] { throw Error(ErrorCode::aborted, "rank 0 gave up"); })); });
  EXPECT_EQ(fake.num_aborted, 1);
}

TEST(NcclGroup, ErrorThatNcclMeetsLaterIsReportedWithoutWaitingAndEndsInAbort) {
  FakeNccl fake;
  const NcclLibrary library = FakeNccl::library();
  {
    NcclGroup group(library, member(10s));
    fake.state = ncclRemoteError;
    ASSERT_TRUE(group.error());
    EXPECT_NE(group.error()->find("remote process exited"), std::string::npos);
  }
  EXPECT_EQ(fake.num_finalized, 0);
  EXPECT_EQ(fake.num_aborted, 1);
}

TEST(NcclGroup, AbortFromAnotherThreadEndsACallThatWaitsAndLaterCallsThrow) {
  FakeNccl fake;
  const NcclLibrary library = FakeNccl::library();
  std::atomic<bool> has_fault{false};
  NcclGroup group(library, member(1h, [&] {
                    if (has_fault) {
                      throw Error(ErrorCode::peer, "rank 0 died");
                    }
                  }));
  fake.polls_in_progress = -1;
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    has_fault = true;
    group.abort();
  });
  for (int call = 0; call < 2; ++call) {
    expect_error(ErrorCode::peer, "rank 0 died", [&] { group.all_reduce(nullptr, nullptr, 1, ncclFloat32, nullptr); });
  }
  other.join();
  group.abort();
  EXPECT_EQ(fake.num_aborted, 1) << "NCCL frees at the first abort; a second would free again";
}

TEST(NcclGroup, PeersThatDoNotTakeWhatIsOnItsWayDelayTheEndByTheDeadlineOnly) {
  FakeNccl fake;
  const NcclLibrary library = FakeNccl::library();
  fake.hangs_at_the_end = true;
  const auto start = Clock::now();
  { const NcclGroup group(library, member(50ms)); }
  EXPECT_GE(Clock::now() - start, 50ms);
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(fake.num_aborted, 1);
  EXPECT_EQ(fake.num_destroyed, 0);
}

}  // namespace
}  // namespace moelink

#else

TEST(NcclGroup, NeedsNcclsHeader) { GTEST_SKIP() << "built without NCCL: nccl.h or the CUDA toolkit was not found"; }

#endif
