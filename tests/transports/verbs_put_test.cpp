// transports/verbs on the soft NIC: the conformance suite with every kind of mischief, and what goes wrong with NICs.
#include "put_conformance.hpp"
#include "soft_nic_case.hpp"

namespace moelink::test {
namespace {

PutCase soft_case(const std::string& name, const std::string& words) {
  return {.name = name,
          .obstacle = [] { return std::string(); },
          .make = [words](const PutOptions& options) { return make_soft_put(options, words); }};
}

INSTANTIATE_TEST_SUITE_P(Verbs, PutConformance,
                         ::testing::Values(soft_case("plain", ""), soft_case("infiniband", "link=ib"),
                                           soft_case("all_mischief", "reorder,split,delay_us=300"),
                                           soft_case("three_lanes_all_mischief",
                                                     "devices=3,reorder,split,delay_us=200")),
                         put_case_name);

class VerbsFaults : public PutConformance {};

INSTANTIATE_TEST_SUITE_P(Verbs, VerbsFaults, ::testing::Values(soft_case("soft", "")), put_case_name);

/// Two ranks put to each other until something breaks; `words` are for rank 0's NIC. Returns what each threw.
std::vector<std::string> run_until_broken(const std::string& words) {
  return run_ranks({0, 0}, [&](Rendezvous& meet) {
    const PutOptions options{.rank = meet.rank(), .num_ranks = 2, .remotes = {1 - meet.rank()}};
    PutRank rank(meet, make_soft_put(options, meet.rank() == 0 ? words : ""), options, 4096);
    const Deadline deadline = Deadline::after(PutRank::kPatience);
    for (std::uint32_t i = 0; !deadline.expired(); ++i) {
      rank.put(rank.make(1 - rank.rank(), 0, 4096, i % 60'000));
      rank.poll_once();
    }
  });
}

TEST_P(VerbsFaults, ALostWriteIsRetriesExceededAndNamesThePeer) {
  const auto failures = run_until_broken("drop_after=20");
  EXPECT_NE(failures[0].find("rank 1"), std::string::npos) << failures[0];
  EXPECT_NE(failures[0].find("retry counter exceeded"), std::string::npos) << failures[0];
  EXPECT_NE(failures[0].find("soft0 port 1"), std::string::npos) << failures[0];
  EXPECT_NE(failures[1].find("rank 0"), std::string::npos) << failures[1];
}

TEST_P(VerbsFaults, ABrokenQueuePairNamesThePeerAndADeadDeviceItself) {
  EXPECT_NE(run_until_broken("event_after=20,event=qp_fatal")[0].find("with rank 1"), std::string::npos);
  const std::string fatal = run_until_broken("event_after=20,event=device_fatal")[0];
  EXPECT_NE(fatal.find("NIC of rank 0"), std::string::npos) << fatal;
  EXPECT_NE(fatal.find("device fatal"), std::string::npos) << fatal;
}

TEST_P(VerbsFaults, APortThatWentDownExplainsTheFailureThatFollows) {
  const std::string failure = run_until_broken("event_after=20,event=port_err,drop_after=200")[0];
  EXPECT_NE(failure.find("retry counter exceeded"), std::string::npos) << failure;
  EXPECT_NE(failure.find("soft0 had reported: port error"), std::string::npos) << failure;
}

TEST_P(VerbsFaults, AnotherPortThatWentDownExplainsNothing) {
  const std::string failure = run_until_broken("event_after=20,event=other_port_err,drop_after=200")[0];
  EXPECT_NE(failure.find("retry counter exceeded"), std::string::npos) << failure;
  EXPECT_EQ(failure.find("port error"), std::string::npos) << failure;
}

TEST_P(VerbsFaults, TheWrongGidIndexIsAnErrorThatNamesThePeerAndThePort) {
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    const PutOptions options{.rank = meet.rank(), .num_ranks = 2, .remotes = {1 - meet.rank()}};
    PutRank rank(meet, make_soft_put(options, "", {.gid_index = meet.rank() == 0 ? 2 : -1}), options, 64);
  });
  EXPECT_NE(failures[0].find("rank 1 on soft0 port 1, RoCE v1, GID 2"), std::string::npos) << failures[0];
  EXPECT_NE(failures[1].find("rank 0 failed while connecting"), std::string::npos) << failures[1];
}

TEST_P(VerbsFaults, RanksWithDifferentNumbersOfNicsUseAsManyAsBothHave) {
  for (const std::string& failure : run_ranks({0, 0}, [&](Rendezvous& meet) {
         const PutOptions options{.rank = meet.rank(), .num_ranks = 2, .remotes = {1 - meet.rank()}};
         PutRank rank(meet, make_soft_put(options, meet.rank() == 0 ? "devices=3" : "devices=2"), options, 10'001);
         rank.fill(0, 10'001, static_cast<std::uint64_t>(rank.rank()));
         rank.put(rank.make(1 - rank.rank(), 0, 10'001, 1));
         rank.wait(1, 1);
         EXPECT_EQ(rank.num_wrong(0, 10'001, static_cast<std::uint64_t>(1 - rank.rank())), 0U);
         meet.barrier();
       })) {
    EXPECT_EQ(failure, "");
  }
}

TEST_P(VerbsFaults, InfiniBandAndEthernetDoNotMatchAndBothRanksSaySo) {
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    const PutOptions options{.rank = meet.rank(), .num_ranks = 2, .remotes = {1 - meet.rank()}};
    PutRank rank(meet, make_soft_put(options, meet.rank() == 0 ? "link=ib" : "link=roce"), options, 64);
  });
  EXPECT_NE(failures[0].find("different kinds"), std::string::npos) << failures[0];
  EXPECT_NE(failures[1].find("different kinds"), std::string::npos) << failures[1];
}

TEST(VerbsLibraryTest, ALibraryThatIsMissingOrSomethingElseIsAnErrorThatSaysWhatToDo) {
  for (const char* path : {"/nowhere/libibverbs.so", "libm.so.6"}) {
    try {
      (void)make_verbs_put({.remotes = {1}}, {.library = path});
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("install rdma-core"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace moelink::test
