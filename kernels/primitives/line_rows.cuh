// Rows as lines (protocol/nvlink_lines.hpp): 16 bytes are two pairs of lines, and a thread that reads them waits for
// them.
#pragma once

#include "moelink/device/ptx/line.cuh"
#include "moelink/device/sync/tagged_word.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/nvlink_lines.hpp"

namespace moelink {

/// Stores 16 bytes as lines, 32 bytes at `lines`, for a peer to read.
MOELINK_DEVICE void st_lines_sys(u8* lines, const Vec16& value, u32 tag) {
  WordPair* pairs = reinterpret_cast<WordPair*>(lines);
  st_line_sys_pair(pairs, {tagged(value.x, tag), tagged(value.y, tag)});
  st_line_sys_pair(pairs + 1, {tagged(value.z, tag), tagged(value.w, tag)});
}

/// Sixteen bytes as lines, as they were when the thread looked.
struct LinesSeen {
  WordPair low, high;

  MOELINK_DEVICE static LinesSeen at(const u8* lines) {
    const WordPair* pairs = reinterpret_cast<const WordPair*>(lines);
    const WordPair low = ld_line_sys_pair(pairs);
    return {low, ld_line_sys_pair(pairs + 1)};
  }
  [[nodiscard]] MOELINK_DEVICE bool have(u32 tag) const { return carry(low, tag) && carry(high, tag); }
  [[nodiscard]] MOELINK_DEVICE Vec16 value() const {
    return {data_of(low.first), data_of(low.second), data_of(high.first), data_of(high.second)};
  }
};

/// Waits until 16 bytes have come as lines. False: a fault. (A call: where it stands in line, what surrounds it
/// spills.)
MOELINK_COLD bool wait_for_lines(const FaultContext& fault, FaultPhase phase, i32 peer, u64 epoch, const u8* lines) {
  const u32 tag = tag_of(epoch);
  return wait_until(fault, {.phase = phase, .peer = peer, .epoch = epoch, .expected = tag}, [&](u64& seen) {
    const LinesSeen now = LinesSeen::at(lines);
    seen = (carry(now.low, tag) ? now.high : now.low).first >> 32U;
    return now.have(tag);
  });
}

}  // namespace moelink
