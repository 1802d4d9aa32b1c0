#include "transports/reach.hpp"

#include <gtest/gtest.h>

namespace moelink::test {
namespace {

RankPlace host_place(std::uint64_t process) {
  RankPlace place;
  place.process = process;
  place.machine = {'m'};
  place.device_kinds = 0b10001;  // threads, shm
  return place;
}

RankPlace gpu_place(std::uint64_t process, int ordinal) {
  RankPlace place;
  place.process = process;
  place.machine = {'m'};
  place.device_ordinal = ordinal;
  place.device_uuid[0] = static_cast<std::uint8_t>(ordinal);
  place.device_kinds = 0b01111;  // threads, vmm, fabric, ipc
  return place;
}

/// One node, every pair with direct access.
ReachFacts facts_of(std::vector<RankPlace> places) {
  ReachFacts facts;
  const std::size_t ranks = places.size();
  facts.places = std::move(places);
  facts.nodes.assign(ranks, 0);
  facts.access.assign(ranks * ranks, DeviceAccess::direct);
  return facts;
}

void drop(RankPlace& place, MemoryKind kind) {
  place.device_kinds = static_cast<std::uint8_t>(place.device_kinds & ~(1U << static_cast<unsigned>(kind)));
}

TEST(ChooseMemory, ThreadsForOneProcessDescriptorsForSeveral) {
  EXPECT_EQ(choose_memory(facts_of({gpu_place(1, 0), gpu_place(1, 1)}), 0).kind, MemoryKind::threads);
  EXPECT_EQ(choose_memory(facts_of({gpu_place(1, 0), gpu_place(2, 1)}), 0).kind, MemoryKind::vmm);
  EXPECT_EQ(choose_memory(facts_of({host_place(1), host_place(2)}), 0).kind, MemoryKind::shm);
}

TEST(ChooseMemory, IpcWhereOneDeviceLacksDescriptors) {
  ReachFacts facts = facts_of({gpu_place(1, 0), gpu_place(2, 1), gpu_place(3, 2)});
  drop(facts.places[1], MemoryKind::vmm);
  const MemoryChoice choice = choose_memory(facts, 0);
  EXPECT_EQ(choice.kind, MemoryKind::ipc);
  EXPECT_NE(choice.report().find("cuda:1 or its driver does not support it"), std::string::npos) << choice.report();
}

TEST(ChooseMemory, FabricAcrossMachinesOfOneCliqueOnly) {
  ReachFacts facts = facts_of({gpu_place(1, 0), gpu_place(2, 0)});
  facts.places[1].machine = {'n'};
  facts.access.assign(4, DeviceAccess::elsewhere);
  EXPECT_EQ(choose_memory(facts, 0).kind, std::nullopt);
  for (RankPlace& place : facts.places) {
    place.has_fabric = true;
    place.fabric_cluster = {1, 2, 3};
    place.fabric_clique = 7;
  }
  EXPECT_EQ(choose_memory(facts, 0).kind, MemoryKind::fabric);
  facts.places[1].fabric_clique = 8;
  EXPECT_EQ(choose_memory(facts, 0).kind, std::nullopt);
}

TEST(ChooseMemory, NoPeerAccessOneWayIsEnoughToRefuse) {
  ReachFacts facts = facts_of({gpu_place(1, 0), gpu_place(2, 1)});
  facts.access[2] = DeviceAccess::none;  // from rank 1 to rank 0
  const MemoryChoice choice = choose_memory(facts, 0);
  EXPECT_EQ(choice.kind, std::nullopt);
  EXPECT_NE(choice.report().find("rank 1 cannot map rank 0: the driver allows no peer access"), std::string::npos)
      << choice.report();
}

TEST(ChooseMemory, AHiddenDeviceSaysHowToShowIt) {
  ReachFacts facts = facts_of({gpu_place(1, 0), gpu_place(2, 1)});
  facts.access[1] = DeviceAccess::invisible;
  EXPECT_NE(choose_memory(facts, 0).report().find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(ChooseMemory, MixedHostAndDeviceIsRefused) {
  EXPECT_EQ(choose_memory(facts_of({gpu_place(1, 0), host_place(1)}), 0).kind, std::nullopt);
}

TEST(ChooseMemory, OtherNodesDoNotMatter) {
  ReachFacts facts = facts_of({host_place(1), host_place(2), gpu_place(3, 0)});
  facts.nodes = {0, 0, 1};
  EXPECT_EQ(choose_memory(facts, 0).kind, MemoryKind::shm);
  EXPECT_EQ(choose_memory(facts, 1).kind, MemoryKind::threads);
}

TEST(ChooseMemory, OnlyOneKindCanBeAskedFor) {
  const MemoryChoice choice = choose_memory(facts_of({gpu_place(1, 0), gpu_place(2, 1)}), 0, MemoryKind::ipc);
  EXPECT_EQ(choice.kind, MemoryKind::ipc);
  EXPECT_NE(choice.report().find("only ipc was asked for"), std::string::npos);
}

TEST(NodeKey, FabricBeforeMachine) {
  RankPlace place = gpu_place(1, 0);
  EXPECT_EQ(node_key(place), "machine m");
  place.has_fabric = true;
  place.fabric_clique = 3;
  EXPECT_EQ(node_key(place), "fabric 00000000000000000000000000000000 clique 3");
}

}  // namespace
}  // namespace moelink::test
