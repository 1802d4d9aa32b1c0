// Those who must not come in, and those inside who break the rules.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "comm/expect_error.hpp"
#include "comm/loopback_group.hpp"
#include "comm/raw_rank.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using testing::Door;
using testing::expect_error;
using testing::meet;
using testing::RawRank;

constexpr auto kDeadline = 20s;

/// Ranks 0 .. size - 1 meet, once `before` has been done to the door, and make one round.
void meet_after(Door& door, int size, const std::function<void()>& before) {
  run_threads(static_cast<std::size_t>(size), [&](std::size_t r) {
    if (r == 1) {
      before();
    }
    const auto b = meet(door, {static_cast<int>(r), {size, 1, ""}, kDeadline});
    b->barrier("meet", kDeadline);
  });
}

Hello hello_of(std::uint32_t rank, std::uint32_t size) {
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.patience_ms = 20'000;
  hello.job = 1;
  return hello;
}

TEST(TcpStrangers, GarbageIsDroppedWithoutDisturbingTheOthers) {
  Door door;
  meet_after(door, 3, [&] {
    RawRank browser(door.address);
    browser.send(bytes_of("GET / HTTP/1.1\r\nHost: moelink\r\n\r\n"));
    EXPECT_TRUE(browser.is_closed());
    RawRank noise(door.address);
    noise.send(Bytes(1 << 20, std::byte{0xa5}));
    EXPECT_TRUE(noise.is_closed());
  });
}

TEST(TcpStrangers, PortScannersAndSilentOnesDoNotKeepRanksOut) {
  Door door;
  std::vector<std::unique_ptr<RawRank>> silent;
  meet_after(door, 3, [&] {
    for (int i = 0; i < 20; ++i) {
      const RawRank scanner(door.address);  // connects and goes
    }
    for (int i = 0; i < 300; ++i) {  // more than the hub keeps at its door
      silent.push_back(std::make_unique<RawRank>(door.address));
      silent.back()->send(bytes_of(kWireMagic).first(1 + static_cast<std::size_t>(i) % kWireMagic.size()));
    }
  });
  EXPECT_TRUE(silent.front()->is_closed());
}

TEST(TcpStrangers, SecondOfOneRankIsRefusedAndTheFirstStays) {
  Door door;
  run_threads(3, [&](std::size_t r) {
    if (r == 2) {
      // A second rank 1 before rank 2, which keeps the door open.
      std::this_thread::sleep_for(100ms);
      expect_error(ErrorCode::peer, {"rank 1 has already joined", "two processes"}, [&] {
        (void)meet(door, {1, {3, 1, ""}, kDeadline});
      });
    }
    meet(door, {static_cast<int>(r), {3, 1, ""}, kDeadline})->barrier("meet", kDeadline);
  });
}

TEST(TcpStrangers, WrongKeyIsRefusedAtOnceAndNamedToTheOthers) {
  Door door;
  run_threads(3, [&](std::size_t r) {
    if (r == 2) {
      expect_error(ErrorCode::peer, {"turned this rank, 2, away", "wrong key"}, [&] {
        (void)meet(door, {2, {3, 1, "guess"}, kDeadline});
      });
    } else {
      expect_error(ErrorCode::timeout, {"rank 2 of 3 did not join", "turned away", "wrong key"}, [&] {
        (void)meet(door, {static_cast<int>(r), {3, 1, "right"}, 500ms});
      });
    }
  });
}

/// A rank 1 with `key` is turned away by a group of two with another one, which names it as missing.
void expect_refused(const GroupKey& key, const std::vector<std::string>& words) {
  Door door;
  run_threads(2, [&](std::size_t r) {
    if (r == 0) {
      expect_error(ErrorCode::timeout, {"rank 1 of 2 did not join"}, [&] {
        (void)meet(door, {0, {2, 1, "key"}, 500ms});
      });
    } else {
      expect_error(ErrorCode::mismatch, words, [&] { (void)meet(door, {1, key, kDeadline}); });
    }
  });
}

TEST(TcpStrangers, RankWithoutKeyIsRefused) { expect_refused({2, 1, ""}, {"MOELINK_SECRET"}); }
TEST(TcpStrangers, RankOfAnotherJobIsRefused) { expect_refused({2, 7, "key"}, {"another job"}); }
TEST(TcpStrangers, RankOfAnotherWorldSizeIsRefused) { expect_refused({5, 1, "key"}, {"rank 1 of 5", "one of 2"}); }

TEST(TcpStrangers, KeyWhereNoneIsAskedForIsRefused) {
  Door door;
  run_threads(2, [&](std::size_t r) {
    if (r == 0) {
      expect_error(ErrorCode::timeout, {"rank 1"}, [&] { (void)meet(door, {0, {2, 1, ""}, 300ms}); });
    } else {
      expect_error(ErrorCode::mismatch, {"rank 0 has none"}, [&] { (void)meet(door, {1, {2, 1, "key"}, kDeadline}); });
    }
  });
}

TEST(TcpStrangers, OtherProtocolVersionIsRefusedWithBothNumbers) {
  Door door;
  run_threads(2, [&](std::size_t r) {
    if (r == 0) {
      expect_error(ErrorCode::timeout, {"rank 1"}, [&] { (void)meet(door, {0, {2, 1, ""}, 300ms}); });
      return;
    }
    RawRank raw(door.address);
    EXPECT_EQ(raw.read_greeting().version, kWireVersion);
    Hello hello = hello_of(1, 2);
    hello.version = 99;
    raw.send(encode(hello));
    const auto frame = raw.read_frame();
    ASSERT_TRUE(frame && frame->type == FrameType::refuse);
    EXPECT_NE(decode_fault(frame->payload).sentence.find("99"), std::string::npos);
  });
}

TEST(TcpStrangers, HubThatDoesNotKnowTheKeyIsNotTrusted) {
  Door door;
  std::thread impostor([&] {
    std::pair<UniqueFd, SocketAddress> visitor;
    while (!visitor.first) {
      visitor = accept_from(door.listener.get());
      std::this_thread::sleep_for(1ms);
    }
    Connection connection(std::move(visitor.first));
    Greeting greeting;
    greeting.key_required = true;
    connection.queue(encode(greeting));
    connection.queue(Frame{FrameType::accept, 0, Bytes(32)});
    (void)connection.flush();
    while (connection.fill() && connection.wait(Deadline::after(5s))) {
    }
  });
  expect_error(ErrorCode::peer, {"could not prove"}, [&] { (void)meet(door, {1, {2, 1, "key"}, 5s}); });
  impostor.join();
}

/// Ranks 0 and 2 meet with a raw rank 1 that then does `misdeed`; both must get a peer error with `words`.
void with_raw_rank(const std::vector<std::string>& words, const std::function<void(RawRank&)>& misdeed) {
  Door door;
  run_threads(3, [&](std::size_t r) {
    if (r == 1) {
      RawRank raw(door.address);
      raw.join(hello_of(1, 3));
      misdeed(raw);
      return;
    }
    const auto b = meet(door, {static_cast<int>(r), {3, 1, ""}, kDeadline});
    expect_error(ErrorCode::peer, words, [&] { b->barrier("with a bad one", kDeadline); });
  });
}

TEST(TcpStrangers, RankThatDiesIsNamedToAll) {
  with_raw_rank({"rank 1", "without a farewell"}, [](RawRank&) {});
}

TEST(TcpStrangers, OversizeMessageNamesItsSender) {
  with_raw_rank({"rank 1", "broke the protocol", "4294967295 bytes"}, [](RawRank& raw) {
    ByteWriter header;
    header.u32(static_cast<std::uint32_t>(FrameType::contribute));
    header.u32(0xffffffff);
    header.u64(1);
    raw.send(header.bytes());
    EXPECT_TRUE(raw.is_closed());
  });
}

TEST(TcpStrangers, ContributionThatLiesAboutItsLengthNamesItsSender) {
  with_raw_rank({"rank 1", "broke the protocol", "early"}, [](RawRank& raw) {
    ByteWriter payload;
    payload.u32(1000);
    payload.string("with a bad one");
    payload.u32(500);  // bytes that do not follow
    raw.send(encode(Frame{FrameType::contribute, 1, payload.take()}));
    EXPECT_TRUE(raw.is_closed());
  });
}

TEST(TcpStrangers, WrongRoundNamesItsSender) {
  with_raw_rank({"rank 1", "round 5"}, [](RawRank& raw) {
    raw.send(encode(Frame{FrameType::contribute, 5, {}}));
    EXPECT_TRUE(raw.is_closed());
  });
}

TEST(TcpStrangers, MessageOfUnknownTypeNamesItsSender) {
  with_raw_rank({"rank 1", "type 77"}, [](RawRank& raw) {
    raw.send(encode(Frame{static_cast<FrameType>(77), 0, {}}));
    EXPECT_TRUE(raw.is_closed());
  });
}

}  // namespace
}  // namespace moelink
