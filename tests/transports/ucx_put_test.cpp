// transports/ucx: the conformance suite, over what UCX chooses between threads and over tcp.
#include "transports/ucx/put.hpp"

#include <chrono>
#include <cstdlib>

#include "put_conformance.hpp"
#include "transports/ucx/library.hpp"

namespace moelink::test {
namespace {

std::string no_ucx() {
  try {
    (void)make_ucx_put({});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Ucx, PutConformance,
                         ::testing::Values(PutCase{.name = "chosen",
                                                   .obstacle = no_ucx,
                                                   .make = make_ucx_put,
                                                   .owner_notices_lost_region = true},
                                           PutCase{.name = "tcp",
                                                   .obstacle = no_ucx,
                                                   .make =
                                                       [](const PutOptions& options) {
                                                         ::setenv("UCX_TLS", "tcp", 1);  // read at construction
                                                         auto transport = make_ucx_put(options);
                                                         return transport;
                                                       },
                                                   .owner_notices_lost_region = true}),
                         put_case_name);

/// UCX whose progress stands still on threads that say so.
thread_local bool ucx_is_stuck = false;
const UcxLibrary& ucx_that_can_stick() {
  static const UcxLibrary library = [] {
    UcxLibrary of_test = UcxLibrary::get();
    of_test.worker_progress = [](ucp_worker_h worker) {
      return ucx_is_stuck ? 0U : UcxLibrary::get().worker_progress(worker);
    };
    return of_test;
  }();
  return library;
}

/// Over tcp, where rank 1 has to take part in what it puts, rank 1 stops in the middle of a put, and rank 0's UCX never
/// ends what it receives: rank 0 goes all the same, neither hanging nor ended by UCX.
TEST(UcxPut, WhatUcxNeverEndsDoesNotHoldUpRegionsAndTransports) {
  if (const std::string obstacle = no_ucx(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  using namespace std::chrono_literals;
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  ::setenv("UCX_TLS", "tcp", 1);
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    const PutOptions options{.rank = meet.rank(), .num_ranks = 2, .remotes = {1 - meet.rank()}};
    PutRank rank(meet, make_ucx_put_over(ucx_that_can_stick(), options), options, kBytes);
    rank.put(rank.make(1 - meet.rank(), 0, 8, 1));
    rank.wait(1, 1);
    if (meet.rank() == 1) {
      rank.put(rank.make(0, 0, kBytes, 2));
      (void)rank.poll_once();
    } else {
      rank.poll_for(200ms);
      EXPECT_EQ(rank.arrived.size(), 1U) << "all of it is here: nothing was stuck";
    }
    meet.barrier();
    const auto start = std::chrono::steady_clock::now();
    ucx_is_stuck = meet.rank() == 0;
    rank.drop_target();
    rank.leave();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
    meet.barrier();
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace moelink::test
