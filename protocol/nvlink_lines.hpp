// Partial rows as lines: how combine of few tokens answers (docs/nvlink.md, "Partials as lines"). Every 4 bytes go with
// a tag of the epoch in one aligned word of 8, which a reader sees whole: what arrives says so itself, without a flag,
// and so without the release that waits until all that was stored has reached the other rank. Twice the bytes, one
// trip.
//
// Both ends know that it is so: from the configuration (NvlinkShape::line_tokens), and from the token count of the
// home's group, which its dispatch header told.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Bytes as lines, for each byte.
inline constexpr i32 kLineExpansion = 2;
/// Partials are lines up to so many tokens of a source, and so many bytes that it gets (before they are lines): above,
/// twice the bytes cost more than a release. Measured on two H200 (docs/performance.md).
inline constexpr i32 kMaxLineTokens = 32;
inline constexpr i64 kMaxLineBytes = 448 << 10;
/// Only among so few groups: a bit for each.
inline constexpr i32 kMaxLineSources = 64;

/// NvlinkShape::line_tokens, if a token's partials come from at most `most_others` other ranks.
MOELINK_DEVICE constexpr i32 line_tokens(i64 max_tokens, i64 most_others, i64 partial_bytes) {
  if (most_others <= 0 || partial_bytes <= 0) return 0;
  return static_cast<i32>(
      min_of(min_of(max_tokens, i64{kMaxLineTokens}), kMaxLineBytes / (most_others * partial_bytes)));
}

/// NOTE [tags that come again]. Tags repeat after 2^31 epochs, and a line may lie unwritten for as long. So in one
/// epoch of 2^30 partials are not lines, and each rank clears its own region in that combine: the lines of the epoch
/// before have been read, and those of the next are stored only after this rank's next dispatch header (docs/nvlink.md,
/// "Why a region may be written again").
MOELINK_DEVICE constexpr bool clears_lines(u64 epoch) { return (epoch & ((u64{1} << 30U) - 1)) == 0; }

}  // namespace moelink
