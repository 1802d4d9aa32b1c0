// The routing of few tokens over ranks, which every block works out for itself, in scratch: it reads all ids of its
// source, counts physical experts, and finds a token's slots and the ranks of its entries when it gets to that token.
#pragma once

#include "moelink/device/moe/nvlink_route.cuh"
#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/stable_rank.cuh"
#include "moelink/protocol/nvlink_scratch.hpp"

namespace moelink {

template <class Exec, class S>
class FewTokens {
 public:
  static constexpr int kIdsAtOnce = 4;  ///< of one thread
  using Ids = IdBatch<kIdsAtOnce>;

  MOELINK_DEVICE FewTokens(const Exec& ex, S spec, const NvlinkDispatchArgs& args, const NvlinkDecodeScratch& at)
      : spec_(spec), args_(args) {
    u8* base = static_cast<u8*>(ex.scratch());
    counts = reinterpret_cast<u32*>(base + at.counts);
    codes = reinterpret_cast<u16*>(base + at.codes);
    masks_ = reinterpret_cast<u32*>(base + at.masks);
    ranks = reinterpret_cast<i32*>(base + at.ranks);
    slots = reinterpret_cast<i32*>(base + at.slots);
  }

  /// By the block: all ids as codes, how many there are of each expert, and which ranks each token goes to. Tokens from
  /// `num_tokens` on are skipped. `ids`: the thread's first, under way. A block barrier is at its end.
  MOELINK_DEVICE void count(const Exec& ex, Ids& ids, i32 num_tokens) const {
    const PhysicalExperts experts(spec_, args_);
    const i32 bound = args_.local.num_tokens * spec_().top_k;
    const i32 end = num_tokens * spec_().top_k;
    const i32 step = ex.num_threads();
    clear_words(ex, counts, spec_().num_experts);
    clear_words(ex, masks_, NvlinkDecodeScratch::mask_words(spec_()) * args_.local.num_tokens);
    ex.sync_block();
    MOELINK_NO_UNROLL
    for (i32 first = ex.thread(); first < bound;) {
      MOELINK_UNROLL
      for (int i = 0; i < kIdsAtOnce; ++i) {
        const i32 entry = first + i * step;
        if (entry >= bound) break;
        const i32 token = entry / spec_().top_k;
        const u16 code = entry < end ? experts.code(ids.get(i, args_.local.id_bytes), token) : kSkippedCode;
        codes[entry] = code;
        if (code >= spec_().num_experts) continue;
        scratch_add(ex, &counts[code], 1);
        const i32 owner = owner_of_expert(code, spec_().num_experts, spec_().num_ranks);
        scratch_or(ex, &mask(owner, token), 1U << static_cast<u32>(owner % 32));
      }
      first += kIdsAtOnce * step;
      if (first < bound) ids.load(args_.local.expert_ids, args_.local.id_bytes, first, step, bound);
    }
    ex.sync_block();
  }

  /// By a warp: slots in use at a rank.
  [[nodiscard]] MOELINK_DEVICE u32 total_to(const Exec& ex, i32 rank, i32 num_tokens) const {
    return warp_sum(ex, tokens_to(ex, rank, num_tokens));
  }

  /// By the block: `slots` and `ranks` of one token, for all threads after the next block barrier. A warp looks at an
  /// entry and a rank at once.
  MOELINK_DEVICE void find(const Exec& ex, i32 token) const {
    const i32 top_k = spec_().top_k;
    MOELINK_NO_UNROLL
    for (i32 job = ex.warp(); job < max_of(top_k, spec_().num_ranks); job += ex.num_warps()) {
      const i32 entry = token * top_k + min_of(job, top_k - 1);
      const i32 to = min_of(job, spec_().num_ranks - 1);
      const u32 same = count_equal(ex, codes, entry, codes[entry]);
      const u32 before = tokens_to(ex, to, token);
      const u32 rank = warp_sum(ex, same);
      const u32 slot = warp_sum(ex, before);
      if (ex.lane() != 0) continue;
      if (job < top_k) ranks[job] = static_cast<i32>(rank);
      if (job < spec_().num_ranks) slots[job] = goes_to(to, token) != 0 ? static_cast<i32>(slot) : -1;
    }
  }

  /// Entry k of a token, as rank `to` sees it. Its weight is left to the caller.
  [[nodiscard]] MOELINK_DEVICE SlotEntry entry(i32 token, i32 k, i32 to) const {
    const i32 expert = codes[token * spec_().top_k + k];
    const i32 first = first_expert_of(to, spec_().num_experts, spec_().num_ranks);
    const i32 end = first_expert_of(to + 1, spec_().num_experts, spec_().num_ranks);
    SlotEntry entry;
    if (expert >= first && expert < end) entry = {.expert = expert - first, .rank = ranks[k]};
    return entry;
  }

  /// This thread's share of the hash of all entries (DispatchHeader::kHash).
  [[nodiscard]] MOELINK_DEVICE u32 hash(const Exec& ex, i32 num_tokens) const {
    u32 sum = 0;
    MOELINK_NO_UNROLL
    for (i32 entry = ex.thread(); entry < num_tokens * spec_().top_k; entry += ex.num_threads()) {
      sum +=
          entry_hash(static_cast<u32>(entry), codes[entry], __builtin_bit_cast(u32, load_weight(args_.local, entry)));
    }
    return sum;
  }

  /// This thread's share of the entries whose id is out of range.
  [[nodiscard]] MOELINK_DEVICE u32 out_of_range(const Exec& ex) const {
    u32 sum = 0;
    MOELINK_NO_UNROLL
    for (i32 i = ex.thread(); i < args_.local.num_tokens * spec_().top_k; i += ex.num_threads()) {
      sum += codes[i] == kOutOfRangeCode ? 1 : 0;
    }
    return sum;
  }

  u32* counts;
  u16* codes;
  i32* ranks;  ///< of the last token found: earlier entries of the same expert
  i32* slots;  ///< of the last token found, at each rank; -1: it has no expert there

 private:
  /// The word with the bit of a rank.
  [[nodiscard]] MOELINK_DEVICE u32& mask(i32 rank, i32 token) const {
    return masks_[rank / 32 * args_.local.num_tokens + token];
  }
  [[nodiscard]] MOELINK_DEVICE u32 goes_to(i32 rank, i32 token) const {
    return mask(rank, token) >> static_cast<u32>(rank % 32) & 1U;
  }
  /// This lane's share of: how many of the tokens [0, end) go to a rank.
  [[nodiscard]] MOELINK_DEVICE u32 tokens_to(const Exec& ex, i32 rank, i32 end) const {
    u32 count = 0;
    MOELINK_NO_UNROLL
    for (i32 token = ex.lane(); token < end; token += Exec::kWarpSize) count += goes_to(rank, token);
    return count;
  }

  S spec_;
  const NvlinkDispatchArgs& args_;
  u32* masks_;
};

}  // namespace moelink
