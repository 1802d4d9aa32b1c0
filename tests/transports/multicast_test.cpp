// Multicast over a fake driver only: the calls in the right order, everything given back on every failure. No test of
// the library executes a multicast call of a real driver.
#include <gtest/gtest.h>

#include "base/cuda_driver.hpp"
#include "transports/multicast/decision.hpp"

#if MOELINK_HAVE_CUDA

#include <algorithm>
#include <functional>

#include "fake_driver.hpp"
#include "leftovers.hpp"
#include "ranks.hpp"
#include "transports/allocate.hpp"
#include "transports/fabric/memory.hpp"
#include "transports/multicast/map.hpp"
#include "transports/vmm/memory.hpp"

#endif

namespace moelink::test {
namespace {

ReachFacts four_devices() {
  ReachFacts facts;
  for (int rank = 0; rank < 4; ++rank) {
    RankPlace place;
    place.device_ordinal = rank;
    place.device_uuid[0] = static_cast<std::uint8_t>(rank + 1);
    place.has_multicast = true;
    place.allows_multicast = true;
    facts.places.push_back(place);
  }
  facts.nodes.assign(4, 0);
  return facts;
}

TEST(WhyNoMulticast, FourDevicesOfOneNodeMayUseIt) {
  EXPECT_EQ(why_no_multicast(four_devices(), 0, MemoryKind::vmm), "");
  EXPECT_EQ(why_no_multicast(four_devices(), 0, MemoryKind::fabric), "");
}

TEST(WhyNoMulticast, TwoOrThreeRanksNeverDo) {
  ReachFacts facts = four_devices();
  facts.nodes = {0, 0, 0, 1};
  EXPECT_NE(why_no_multicast(facts, 0, MemoryKind::vmm).find("3 ranks"), std::string::npos);
  facts.nodes = {0, 0, 1, 1};
  EXPECT_NE(why_no_multicast(facts, 1, MemoryKind::vmm).find("2 ranks"), std::string::npos);
}

TEST(WhyNoMulticast, OneRankThatForbidsItForbidsItForAll) {
  ReachFacts facts = four_devices();
  facts.places[2].allows_multicast = false;
  EXPECT_NE(why_no_multicast(facts, 0, MemoryKind::vmm).find("rank 2 forbids it (MOELINK_NVLS=0"), std::string::npos);
}

TEST(WhyNoMulticast, EveryDeviceMustSupportIt) {
  ReachFacts facts = four_devices();
  facts.places[3].has_multicast = false;
  EXPECT_NE(why_no_multicast(facts, 0, MemoryKind::vmm).find("rank 3"), std::string::npos);
}

TEST(WhyNoMulticast, RanksThatShareADeviceCannot) {
  ReachFacts facts = four_devices();
  facts.places[3].device_uuid = facts.places[1].device_uuid;
  EXPECT_NE(why_no_multicast(facts, 0, MemoryKind::vmm).find("ranks 1 and 3 share a device"), std::string::npos);
}

TEST(WhyNoMulticast, OnlyVirtualMemoryCanBeBound) {
  for (const MemoryKind kind : {MemoryKind::threads, MemoryKind::ipc, MemoryKind::shm}) {
    EXPECT_NE(why_no_multicast(four_devices(), 0, kind), "");
  }
}

#if MOELINK_HAVE_CUDA

constexpr int kRanks = 4;

class MulticastMapping : public ::testing::TestWithParam<MemoryKind> {
 protected:
  void SetUp() override { fake_driver().fail_call(0); }
  void TearDown() override {
    fake_driver().fail_call(0);
    EXPECT_EQ(fake_driver().held(), "");
    EXPECT_EQ(fake_driver().broken_rules(), "");
    EXPECT_EQ(count_leftovers(directory_.path()).files, 0);
  }

  /// Four ranks make a buffer, then its multicast mapping, whose `fail`-th call fails (0: none). Returns the reasons.
  std::vector<std::string> map_on_all(int fail, int& num_calls, const std::function<void(const Window&)>& look) {
    std::vector<std::string> reasons(kRanks);
    const auto failures = run_ranks(std::vector<int>(kRanks, 0), [&](Rendezvous& meet) {
      const CudaDriver& driver = fake_driver().driver();
      const std::shared_ptr<VirtualTransport> transport = GetParam() == MemoryKind::vmm
                                                              ? make_vmm_memory(driver, meet.rank())
                                                              : make_fabric_memory(driver, meet.rank());
      PeerGroupOptions options;
      options.socket_directory = directory_.path();
      auto state = allocate_symmetric(meet, transport, std::vector<int>(kRanks, 0), 1000, options);
      one_rank(meet, [&] { fake_driver().fail_call(fail); });
      const MulticastPart part{*state, *transport};
      reasons[static_cast<std::size_t>(meet.rank())] = map_multicast(meet, &part, options);
      one_rank(meet, [&] {
        num_calls = fake_driver().num_calls();
        fake_driver().fail_call(0);
      });
      look(state->window());
    });
    EXPECT_EQ(failures, std::vector<std::string>(kRanks));
    return reasons;
  }

  TestDirectory directory_;

 private:
  static void one_rank(Rendezvous& meet, const std::function<void()>& action) {
    meet.barrier();
    if (meet.rank() == 0) {
      action();
    }
    meet.barrier();
  }
};

TEST_P(MulticastMapping, EveryRankGetsItsMappingAndGivesItBack) {
  int num_calls = 0;
  const std::size_t before = fake_driver().calls().size();
  const auto reasons = map_on_all(0, num_calls, [](const Window& window) { EXPECT_NE(window.multicast, nullptr); });
  EXPECT_EQ(reasons, std::vector<std::string>(kRanks));
  const std::vector<std::string> all = fake_driver().calls();
  const std::span calls = std::span(all).subspan(before);
  EXPECT_EQ(std::ranges::count(calls, "cuMulticastCreate"), 1);
  EXPECT_EQ(std::ranges::count(calls, "cuMulticastAddDevice"), kRanks);
  EXPECT_EQ(std::ranges::count(calls, "cuMulticastBindMem"), kRanks);
  EXPECT_EQ(std::ranges::count(calls, "cuMulticastUnbind"), kRanks);
  // No bind before the last device was added: what the driver asks for, and what a missing barrier breaks.
  const auto first_bind = std::ranges::find(calls, "cuMulticastBindMem");
  EXPECT_EQ(std::count(calls.begin(), first_bind, "cuMulticastAddDevice"), kRanks);
}

TEST_P(MulticastMapping, WhicheverCallFailsNobodyHasItAndNothingIsLeft) {
  int num_calls = 0;
  (void)map_on_all(0, num_calls, [](const Window&) {});
  const int calls = num_calls;
  ASSERT_GE(calls, 2 + 2 * kRanks);
  for (int n = 1; n <= calls; ++n) {
    const auto reasons = map_on_all(n, num_calls, [](const Window& window) { EXPECT_EQ(window.multicast, nullptr); });
    for (const std::string& reason : reasons) {
      EXPECT_NE(reason, "") << "call " << n;
      EXPECT_EQ(reason, reasons[0]) << "call " << n;
    }
    EXPECT_EQ(fake_driver().held(), "") << "call " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MulticastMapping, ::testing::Values(MemoryKind::vmm, MemoryKind::fabric),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

#endif

}  // namespace
}  // namespace moelink::test
