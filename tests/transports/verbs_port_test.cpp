// transports/verbs/port.hpp and shard.hpp: pure functions.
#include "transports/verbs/port.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "moelink/error.hpp"
#include "transports/verbs/shard.hpp"

namespace moelink {
namespace {

PortInfo port(const std::string& device, int number, bool active, const std::string& pci = "",
              LinkLayer link_layer = LinkLayer::ethernet) {
  return {.device = device, .port = number, .pci_path = pci, .link_layer = link_layer, .active = active};
}
GidEntry gid(int index, GidEntry::Type type, std::array<std::uint8_t, 16> bytes) {
  return {.index = index, .type = type, .bytes = bytes};
}
constexpr std::array<std::uint8_t, 16> kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1};
constexpr std::array<std::uint8_t, 16> kGlobal = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 1};
constexpr std::array<std::uint8_t, 16> kIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};

TEST(VerbsPorts, PortOneIsNotAssumed) {
  const auto chosen = choose_ports({port("mlx5_0", 1, false), port("mlx5_0", 2, true)}, {}, "");
  ASSERT_EQ(chosen.size(), 1U);
  EXPECT_EQ(chosen[0].port, 2);
}

TEST(VerbsPorts, ADeviceUsesTheNicsBehindItsOwnBridge) {
  const std::vector<PortInfo> ports = {port("far", 1, true, "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"),
                                       port("near_down", 1, false, "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0"),
                                       port("near", 1, true, "/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0"),
                                       port("node", 1, true, "/sys/devices/pci0000:00/0000:00:05.0/0000:05:00.0")};
  const auto chosen = choose_ports(ports, {}, "/sys/devices/pci0000:00/0000:00:01.0/0000:04:00.0");
  ASSERT_EQ(chosen.size(), 1U);
  EXPECT_EQ(chosen[0].device, "near");
  EXPECT_EQ(choose_ports(ports, {}, "").size(), 3U);  // nothing to be near to: every active one
}

TEST(VerbsPorts, LinkLayersAreNotMixed) {
  const auto chosen = choose_ports({port("ib", 1, true, "", LinkLayer::infiniband), port("eth", 1, true),
                                    port("ib2", 1, true, "", LinkLayer::infiniband)},
                                   {}, "");
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[1].device, "ib2");
}

TEST(VerbsPorts, TheUsersChoiceIsTakenInItsOrderOrRefusedByName) {
  const std::vector<PortInfo> ports = {port("a", 1, true), port("b", 1, false), port("b", 2, true)};
  const auto chosen = choose_ports(ports, {.devices = "b,a:1"}, "");
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(text(chosen[0].device, chosen[0].port, chosen[1].device, chosen[1].port), "b2a1");
  for (const char* bad : {"c", "b:1", "a:2", "a,,b"}) {
    try {
      (void)choose_ports(ports, {.devices = bad}, "");
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("b port 1 (down)"), std::string::npos) << error.what();
    }
  }
}

TEST(VerbsPorts, NoActivePortSaysWhichThereAre) {
  try {
    (void)choose_ports({port("a", 1, false)}, {}, "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("a port 1 (down)"), std::string::npos) << error.what();
  }
}

TEST(VerbsGids, RoceV2AndIpv4ComeFirst) {
  using Type = GidEntry::Type;
  PortInfo one = port("a", 1, true);
  one.gids = {gid(0, Type::roce_v1, kLinkLocal), gid(1, Type::roce_v2, kLinkLocal), gid(2, Type::roce_v1, kIpv4),
              gid(3, Type::roce_v2, kIpv4), gid(5, Type::roce_v2, kGlobal)};
  EXPECT_EQ(choose_gid(one, -1).index, 3);
  one.gids.erase(one.gids.begin() + 3);
  EXPECT_EQ(choose_gid(one, -1).index, 5);
  one.gids.pop_back();
  EXPECT_EQ(choose_gid(one, -1).index, 1);
  EXPECT_EQ(choose_gid(one, 2).index, 2);
  EXPECT_THROW((void)choose_gid(one, 9), Error);
  one.gids.clear();
  EXPECT_THROW((void)choose_gid(one, -1), Error);
}

TEST(VerbsTimeouts, AreNotShorterThanAskedForAndNeverForEver) {
  using std::chrono::milliseconds;
  EXPECT_EQ(timeout_exponent(VerbsSettings().timeout), 14);
  EXPECT_EQ(timeout_exponent(milliseconds(68)), 15);
  EXPECT_EQ(timeout_exponent(milliseconds(1)), 8);
  EXPECT_EQ(timeout_exponent(milliseconds(0)), 1);
  EXPECT_EQ(timeout_exponent(milliseconds(4300)), 21);
  EXPECT_EQ(timeout_exponent(std::chrono::hours(24)), 31);
}

TEST(VerbsShards, LeaveNoRemainderAndShareNoLine) {
  for (const std::size_t size : {0, 1, 7, 127, 128, 129, 255, 256, 1000, 4096, 1'048'577}) {
    for (int lanes = 1; lanes <= 8; ++lanes) {
      std::size_t next = 0;
      std::size_t largest = 0;
      for (int lane = 0; lane < lanes; ++lane) {
        const Shard shard = shard_of(size, lane, lanes);
        EXPECT_EQ(shard.offset_bytes, next) << size << " over " << lanes;
        EXPECT_TRUE(shard.offset_bytes % 128 == 0 || shard.size_bytes == 0);
        next += shard.size_bytes;
        largest = std::max(largest, shard.size_bytes);
      }
      EXPECT_EQ(next, size);
      EXPECT_LE(largest, size / static_cast<std::size_t>(lanes) + 128);
    }
  }
}

}  // namespace
}  // namespace moelink
