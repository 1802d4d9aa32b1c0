// transports/make_put.hpp
#include "transports/make_put.hpp"

#include <gtest/gtest.h>

#include "ranks.hpp"

namespace moelink::test {
namespace {

PutOptions options_of(const Rendezvous& meet) {
  return {.rank = meet.rank(), .num_ranks = 2, .remotes = {1 - meet.rank()}};
}

TEST(MakePut, RanksOfOneProcessUseLoopbackUnlessTheyAreToldOtherwise) {
  for (const std::string& failure : run_ranks({0, 1}, [](Rendezvous& meet) {
         EXPECT_EQ(connect_best_put(meet, options_of(meet))->kind(), PutKind::loopback);
         if (MOELINK_HAVE_UCX) {
           EXPECT_EQ(connect_best_put(meet, options_of(meet), PutKind::ucx)->kind(), PutKind::ucx);
           meet.barrier();
         }
       })) {
    EXPECT_EQ(failure, "");
  }
}

TEST(MakePut, RanksThatWantDifferentKindsAreToldWhich) {
  for (const std::string& failure : run_ranks({0, 1}, [](Rendezvous& meet) {
         (void)connect_best_put(meet, options_of(meet), meet.rank() == 0 ? PutKind::loopback : PutKind::ucx);
       })) {
    EXPECT_NE(failure.find("mismatch: rank "), std::string::npos) << failure;
  }
}

TEST(MakePut, AnUnknownNameIsRefusedByNameAndPlace) {
  EXPECT_EQ(put_kind_of("ucx", "--transport"), PutKind::ucx);
  try {
    (void)put_kind_of("udp", "MOELINK_PUT");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("MOELINK_PUT=udp"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moelink::test
