// The 32 bits that travel with a put: which chunk of which call has arrived.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// {exchange, phase, low bits of the epoch, chunk}. Every combination is a valid number; what it names may not exist,
/// which the receiver checks.
struct PutImmediate {
  static constexpr u32 kExchangeBits = 6;
  static constexpr u32 kPhaseBits = 2;
  static constexpr u32 kEpochBits = 8;
  static constexpr u32 kChunkBits = 16;

  u32 exchange = 0;
  u32 phase = 0;
  u32 epoch_low = 0;  ///< the epoch modulo 2^kEpochBits
  u32 chunk = 0;

  MOELINK_DEVICE constexpr u32 packed() const {
    return exchange << (kPhaseBits + kEpochBits + kChunkBits) | phase << (kEpochBits + kChunkBits) |
           epoch_low << kChunkBits | chunk;
  }
  MOELINK_DEVICE static constexpr PutImmediate unpacked(u32 word) {
    return {word >> (kPhaseBits + kEpochBits + kChunkBits),
            word >> (kEpochBits + kChunkBits) & ((1U << kPhaseBits) - 1), word >> kChunkBits & ((1U << kEpochBits) - 1),
            word & ((1U << kChunkBits) - 1)};
  }

  MOELINK_DEVICE static constexpr u32 low_of(u64 epoch) { return static_cast<u32>(epoch) & ((1U << kEpochBits) - 1); }
  /// The epoch nearest to `known` whose low bits these are: right while ranks are less than 2^(kEpochBits - 1) epochs
  /// apart. They never are more than one apart, because every rank hears of every other in each epoch.
  MOELINK_DEVICE constexpr u64 epoch_near(u64 known) const {
    const auto ahead = static_cast<i8>(epoch_low - low_of(known));
    return known + static_cast<u64>(static_cast<i64>(ahead));
  }
};
static_assert(PutImmediate::kExchangeBits + PutImmediate::kPhaseBits + PutImmediate::kEpochBits +
                      PutImmediate::kChunkBits ==
                  32 &&
              PutImmediate::kEpochBits == 8);

}  // namespace moelink
