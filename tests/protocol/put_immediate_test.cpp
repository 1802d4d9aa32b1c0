// protocol/put_immediate.hpp
#include "moelink/protocol/put_immediate.hpp"

#include <gtest/gtest.h>

namespace moelink {
namespace {

TEST(PutImmediate, EveryWordIsReadAsItWasWritten) {
  for (u64 i = 0; i < 200'000; ++i) {
    const u32 word = static_cast<u32>(i * 2'654'435'761U);
    EXPECT_EQ(PutImmediate::unpacked(word).packed(), word);
  }
}

TEST(PutImmediate, FieldsDoNotTouchEachOther) {
  const PutImmediate most{.exchange = 63, .phase = 3, .epoch_low = 255, .chunk = 65535};
  EXPECT_EQ(most.packed(), 0xffffffffU);
  for (const PutImmediate one : {PutImmediate{.exchange = 63}, PutImmediate{.phase = 3}, PutImmediate{.epoch_low = 255},
                                 PutImmediate{.chunk = 65535}}) {
    const PutImmediate read = PutImmediate::unpacked(one.packed());
    EXPECT_EQ(read.exchange, one.exchange);
    EXPECT_EQ(read.phase, one.phase);
    EXPECT_EQ(read.epoch_low, one.epoch_low);
    EXPECT_EQ(read.chunk, one.chunk);
  }
}

TEST(PutImmediate, EpochsAreFoundAgainAcrossTheWrapOfTheirLowBits) {
  for (const u64 known : {u64{300}, u64{255}, u64{256}, u64{511}, u64{512}, (u64{1} << 32) - 1, u64{1} << 40}) {
    for (int apart = -100; apart <= 100; ++apart) {
      const u64 epoch = known + static_cast<u64>(static_cast<i64>(apart));
      const PutImmediate immediate{.epoch_low = PutImmediate::low_of(epoch)};
      EXPECT_EQ(immediate.epoch_near(known), epoch) << known << " " << apart;
    }
  }
}

}  // namespace
}  // namespace moelink
