// One token's output from the partial sums of several ranks: fp32, ranks ascending, one rounding at the end. This rank's
// own partial is computed on the way from its rows, with the rounding that the others' had, and takes no trip through
// memory.
#pragma once

#include "moelink/device/moe/remotes.cuh"
#include "moelink/device/primitives/row_reduce.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// What a rank sends home instead of a token's rows: their weighted sum, as the local combine computes it, in another
/// type.
template <class S>
struct PartialSpec {
  S spec;
  MOELINK_DEVICE constexpr LocalCombineSpec operator()() const {
    return {.hidden = spec().hidden,
            .top_k = spec().top_k,
            .threads = spec().threads,
            .input = spec().input,
            .output = spec().partial};
  }
};

/// One token's sum. Addresses are multiples of 16 bytes.
struct PartialSum {
  RowSum own;          ///< this rank's rows; its output is the token's whole row, its token and num_tokens are not used
  const u8* partials;  ///< that of peer number d is at partials + (d * slots + its slot) * pitch
  i64 pitch_bytes;
  const RemoteArgs* remote;  ///< where those of remotes are
  const i32* slot_of_rank;   ///< [num_ranks], `stride` apart: outside [0, slots): that rank has nothing
  i64 stride;
  i64 slots;
  i32 rank;  ///< this one: its slot says whether it has rows
};

/// From one partial row to the next on their way between nodes.
template <class S>
MOELINK_DEVICE i64 remote_partial_bytes(S spec) {
  return spec().hidden * bytes_of(spec().partial);
}

/// The partial row that another rank has left here.
template <class S>
MOELINK_DEVICE const u8* partial_of(S spec, const PartialSum& sum, i32 rank, i64 slot) {
  const Remotes<S> remotes(spec, *sum.remote);
  if (remotes.has(rank)) {
    return remotes.arrived(remotes.number(rank)) + sum.remote->receive_layout.partials.offset_bytes +
           slot * remote_partial_bytes(spec);
  }
  return sum.partials + (remotes.peer(rank) * sum.slots + slot) * sum.pitch_bytes;
}

/// Other ranks' copies of one result row, behind the same offset of their memory.
struct ResultCopies {
  const Window* window;
  i64 offset_bytes;
  i32 first_rank;
  i32 num_ranks;  ///< this one included; 1: no copies

  template <class Vector>
  MOELINK_DEVICE void store(i64 at_bytes, const Vector& vector) const {
    for (i32 rank = first_rank; rank < first_rank + num_ranks; ++rank) {
      if (rank != window->rank) st_v4(window->at<u8>(rank, offset_bytes + at_bytes), vector);
    }
  }
};

#if MOELINK_ON_DEVICE

/// By the block: elements [begin, end), multiples of kPartialUnit or the row's end. `arrived()`, by the whole block once
/// the own rows are under way, says whether the other ranks' partials may be read; false: nothing is written.
template <class Exec, class S, class Arrived>
MOELINK_DEVICE bool sum_partials(const Exec& ex, S spec, const PartialSum& sum, const ResultCopies& copies, int begin,
                                 int end, Arrived&& arrived) {
  constexpr auto kSpec = S{}();
  constexpr bool kAllFloats =
      kSpec.input == Element::float32 && kSpec.partial == Element::float32 && kSpec.output == Element::float32;
  constexpr int kUnit = kAllFloats ? 4 : 8;
  constexpr int kPartialBytes = kUnit * bytes_of(kSpec.partial);
  constexpr int kOutBytes = kUnit * bytes_of(kSpec.output);
  constexpr int kRanksAtOnce = min_of(kSpec.num_ranks, 64 / kPartialBytes);

  i32 slots[kRanksAtOnce];
  const auto load_slots = [&](int first) {
    MOELINK_UNROLL
    for (int j = 0; j < kRanksAtOnce; ++j) {
      if (first + j < kSpec.num_ranks) slots[j] = sum.slot_of_rank[(first + j) * sum.stride];
    }
  };
  load_slots(0);
  const bool has_own = sum.own.indices != nullptr;
  HeldRows<kSpec, kUnit> rows;
  if (has_own) rows.load(sum.own);

  for (int first_unit = begin / kUnit; first_unit < end / kUnit; first_unit += ex.num_threads()) {
    const int unit = first_unit + ex.thread();
    const bool has_unit = unit < end / kUnit;
    u8* const out = sum.own.output + static_cast<i64>(unit) * kOutBytes;
    float own[kUnit];
    MOELINK_UNROLL
    for (int i = 0; i < kUnit; ++i) own[i] = 0.0F;
    if (has_unit && has_own) {
      rows.add_to(own, sum.own, unit);
      Elements<kSpec.partial, kUnit> rounded;
      rounded.from_floats(own);
      rounded.to_floats(own);
    }
    if (first_unit == begin / kUnit && !arrived()) return false;
    if (!has_unit) continue;

    float total[kUnit];
    MOELINK_UNROLL
    for (int i = 0; i < kUnit; ++i) total[i] = 0.0F;
    Elements<kSpec.output, kUnit> result;
    if (sum.own.accumulate) {
      result.load(out);
      result.to_floats(total);
    }
    for (int first = 0; first < kSpec.num_ranks; first += kRanksAtOnce) {
      if constexpr (kSpec.num_ranks > kRanksAtOnce) load_slots(first);
      Elements<kSpec.partial, kUnit> partials[kRanksAtOnce];
      MOELINK_UNROLL
      for (int j = 0; j < kRanksAtOnce; ++j) {
        const int rank = first + j;
        if (rank >= kSpec.num_ranks || rank == sum.rank || static_cast<u32>(slots[j]) >= sum.slots) continue;
        partials[j].load_from_peer(partial_of(spec, sum, rank, slots[j]) + static_cast<i64>(unit) * kPartialBytes);
      }
      MOELINK_UNROLL
      for (int j = 0; j < kRanksAtOnce; ++j) {
        const int rank = first + j;
        if (rank >= kSpec.num_ranks || static_cast<u32>(slots[j]) >= sum.slots) continue;
        float values[kUnit];
        if (rank == sum.rank) {
          MOELINK_UNROLL
          for (int i = 0; i < kUnit; ++i) values[i] = own[i];
        } else {
          partials[j].to_floats(values);
        }
        MOELINK_UNROLL
        for (int i = 0; i < kUnit; ++i) total[i] = add_rn(total[i], values[i]);
      }
    }
    result.from_floats(total);
    result.store(out);
    if constexpr (kSpec.tp_size > 1) {
      MOELINK_UNROLL
      for (int v = 0; v < result.kVectors; ++v)
        copies.store(static_cast<i64>(unit) * kOutBytes + v * 16, result.vectors[v]);
    }
  }
  return true;
}

#else

template <class Exec, class S, class Arrived>
bool sum_partials(const Exec& ex, S spec, const PartialSum& sum, const ResultCopies& copies, i64 begin, i64 end,
                  Arrived&& arrived) {
  if (begin >= end) return true;
  if (!arrived()) return false;
  const i64 in_bytes = bytes_of(spec().input);
  const i64 partial_bytes = bytes_of(spec().partial);
  const i64 out_bytes = bytes_of(spec().output);
  alignas(64) u8 own[kHostTileElements * 4];
  // Scratch: a pointer per rank.
  const auto slot_of = [&](int rank) -> i64 { return sum.slot_of_rank[rank * sum.stride]; };
  for (i64 first = begin; first < end; first += kHostTileElements) {
    const i64 count = min_of(kHostTileElements, end - first);
    if (sum.own.indices != nullptr) {
      const u8* rows[kMaxTopK];
      for (int k = 0; k < spec().top_k; ++k) {
        const i64 row = sum.own.indices[k];
        const bool exists = static_cast<u64>(row) < sum.own.num_rows;
        rows[k] = exists ? sum.own.rows + row * sum.own.row_stride_bytes + first * in_bytes : nullptr;
      }
      host_reduce_row(spec().input, spec().partial,
                      {.rows = rows,
                       .weights = sum.own.weights,
                       .num_rows = spec().top_k,
                       .output = own,
                       .count = count,
                       .accumulate = false,
                       .streaming = false});
    }
    const u8** partials = static_cast<const u8**>(ex.scratch());
    for (int rank = 0; rank < spec().num_ranks; ++rank) {
      const i64 slot = slot_of(rank);
      const bool exists = static_cast<u64>(slot) < static_cast<u64>(sum.slots);
      partials[rank] = !exists            ? nullptr
                       : rank == sum.rank ? own
                                          : partial_of(spec, sum, rank, slot) + first * partial_bytes;
    }
    u8* const output = sum.own.output + first * out_bytes;
    host_reduce_row(spec().partial, spec().output,
                    {.rows = partials,
                     .weights = nullptr,
                     .num_rows = spec().num_ranks,
                     .output = output,
                     .count = count,
                     .accumulate = sum.own.accumulate,
                     .streaming = false});
    if (spec().tp_size > 1) {
      for (i64 at = 0; at < count * out_bytes; at += 16) {
        copies.store(first * out_bytes + at, *reinterpret_cast<const Vec16*>(output + at));
      }
    }
  }
  return true;
}

#endif

}  // namespace moelink
