// Lines: 8 bytes {32 bits of data, tag}, the tag made of an epoch, so that data and its flag arrive by one access.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Never zero, so that fresh memory does not match. Two epochs with one tag are 2^31 apart.
MOELINK_DEVICE constexpr u32 line_tag(u64 epoch) { return static_cast<u32>(epoch) | 0x80000000U; }

MOELINK_DEVICE constexpr u64 make_line(u32 data, u32 tag) { return static_cast<u64>(tag) << 32U | data; }
MOELINK_DEVICE constexpr bool has_tag(u64 line, u32 tag) { return static_cast<u32>(line >> 32U) == tag; }

}  // namespace moelink
