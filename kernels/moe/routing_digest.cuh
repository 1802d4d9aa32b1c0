// The hash of a routing, by which ranks that should have the same inputs notice that they do not. A sum over entries, so
// that blocks and lanes may take them in any order.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/convert.cuh"
#include "moelink/device/primitives/warp.cuh"

namespace moelink {

/// Spreads 64 bits over 64 bits (the finaliser of splitmix64).
MOELINK_DEVICE u64 spread_bits(u64 x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9UL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebUL;
  return x ^ x >> 31;
}

/// A sum of hashes; its halves are summed apart, because sums over a warp are of 32 bits.
struct EntryHash {
  u32 low = 0;
  u32 high = 0;

  MOELINK_DEVICE void add(u64 hash) {
    low += static_cast<u32>(hash);
    high += static_cast<u32>(hash >> 32);
  }
  MOELINK_DEVICE void add(i64 entry, const IdWords& id, float weight) {
    const u64 what = (static_cast<u64>(id.high) << 32 | id.low) * 0x9e3779b97f4a7c15UL;
    add(spread_bits(what + spread_bits(static_cast<u64>(entry) << 32 | float_bits(weight))));
  }
  MOELINK_DEVICE void add_token_count(i32 num_tokens) { add(spread_bits(~static_cast<u64>(num_tokens))); }
  MOELINK_DEVICE u64 word() const { return static_cast<u64>(high) << 32 | low; }

  /// The sum over the warp, in every lane.
  template <class Exec>
  MOELINK_DEVICE EntryHash over_warp(const Exec& ex) const {
    return {warp_sum(ex, low), warp_sum(ex, high)};
  }
};

/// By one block, which alone writes the digest: all entries. `sums`: two words of scratch.
template <class Exec, class S>
MOELINK_DEVICE void digest_all(const Exec& ex, S spec, const LocalDispatchArgs& args, i32 num_tokens, u32* sums) {
  EntryHash hash;
  for (i32 entry = ex.thread(); entry < num_tokens * spec().top_k; entry += ex.num_threads()) {
    hash.add(entry, load_id(args, entry), load_weight(args, entry));
  }
  ex.sync_block();
  for (int i = ex.thread(); i < 2; i += ex.num_threads()) sums[i] = 0;
  ex.sync_block();
  hash = hash.over_warp(ex);
  if (ex.lane() == 0) {
    scratch_add(ex, &sums[0], hash.low);
    scratch_add(ex, &sums[1], hash.high);
  }
  ex.sync_block();
  if (ex.thread() != 0) return;
  EntryHash all{sums[0], sums[1]};
  all.add_token_count(num_tokens);
  args.digest->num_parts = 1;
  args.digest->parts[0] = all.word();
}

/// By every block: its part, which the lanes of one warp have.
template <class Exec>
MOELINK_DEVICE void publish_digest_part(const Exec& ex, const LocalDispatchArgs& args, i32 num_tokens,
                                        const EntryHash& of_lane, int warp) {
  if (ex.warp() != warp) return;
  EntryHash part = of_lane.over_warp(ex);
  if (ex.lane() != 0) return;
  if (ex.block() == 0) {
    part.add_token_count(num_tokens);
    args.digest->num_parts = static_cast<u64>(ex.num_blocks());
  }
  args.digest->parts[ex.block()] = part.word();
}

}  // namespace moelink
