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
    totals = reinterpret_cast<u32*>(base + at.totals);
  }

  /// By the block: all ids as codes, how many there are of each expert, and which ranks each token goes to. Tokens from
  /// `num_tokens` on are skipped. `ids`: the thread's first, under way. A block barrier is at its end.
  MOELINK_DEVICE void count(const Exec& ex, Ids& ids, i32 num_tokens) const {
    const PhysicalExperts experts(spec_, args_);
    const i32 bound = args_.local.num_tokens * spec_().top_k;
    const i32 end = num_tokens * spec_().top_k;
    const i32 step = ex.num_threads();
    clear_words(ex, counts, spec_().num_experts);
    ex.sync_block();
    for (i32 first = ex.thread(); first < bound;) {
      MOELINK_UNROLL
      for (int i = 0; i < kIdsAtOnce; ++i) {
        const i32 entry = first + i * step;
        if (entry >= bound) break;
        const u16 code = entry < end ? experts.code(ids.ids[i], entry / spec_().top_k) : kSkippedCode;
        codes[entry] = code;
        if (code < spec_().num_experts) scratch_add(ex, &counts[code], 1);
      }
      first += kIdsAtOnce * step;
      ids.load(args_.local.expert_ids, args_.local.id_bytes, first, step, bound);
    }
    ex.sync_block();
    MOELINK_NO_UNROLL
    for (i32 token = ex.thread(); token < num_tokens; token += step) find_ranks_of(token);
    ex.sync_block();
  }

  /// By the block: slots in use at each rank, for all threads after the next block barrier.
  MOELINK_DEVICE void find_totals(const Exec& ex, i32 num_tokens) const {
    for (i32 rank = ex.warp(); rank < spec_().num_ranks; rank += ex.num_warps()) {
      const u32 total = warp_sum(ex, tokens_to(ex, rank, num_tokens));
      if (ex.lane() == 0) totals[rank] = total;
    }
  }

  /// By the block: `slots` and `ranks` of one token, for all threads after the next block barrier.
  MOELINK_DEVICE void find(const Exec& ex, i32 token) const {
    const i32 top_k = spec_().top_k;
    MOELINK_NO_UNROLL
    for (i32 job = ex.warp(); job < top_k + spec_().num_ranks; job += ex.num_warps()) {
      if (job < top_k) {
        const i32 entry = token * top_k + job;
        const u32 rank = warp_sum(ex, count_equal(ex, codes, entry, codes[entry]));
        if (ex.lane() == 0) ranks[job] = static_cast<i32>(rank);
      } else {
        const i32 to = job - top_k;
        const u32 slot = warp_sum(ex, tokens_to(ex, to, token));
        if (ex.lane() == 0) slots[to] = goes_to(to, token) != 0 ? static_cast<i32>(slot) : -1;
      }
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
  i32* ranks;   ///< of the last token found: earlier entries of the same expert
  i32* slots;   ///< of the last token found, at each rank; -1: it has no expert there
  u32* totals;  ///< after find_totals()

 private:
  /// By one thread.
  MOELINK_DEVICE void find_ranks_of(i32 token) const {
    const u16* own = codes + token * spec_().top_k;
    for (i32 word = 0; word < NvlinkDecodeScratch::mask_words(spec_()); ++word) {
      u32 mask = 0;
      for (i32 k = 0; k < spec_().top_k; ++k) {
        if (own[k] >= spec_().num_experts) continue;
        const i32 owner = owner_of_expert(own[k], spec_().num_experts, spec_().num_ranks);
        mask |= owner / 32 == word ? 1U << static_cast<u32>(owner % 32) : 0;
      }
      masks_[word * args_.local.num_tokens + token] = mask;
    }
  }

  [[nodiscard]] MOELINK_DEVICE u32 goes_to(i32 rank, i32 token) const {
    return masks_[rank / 32 * args_.local.num_tokens + token] >> static_cast<u32>(rank % 32) & 1U;
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
