// One token's output from the partial sums of several ranks: fp32, ranks ascending, one rounding at the end. This
// rank's own partial is computed on the way from its rows, with the rounding that the others' had, and takes no trip
// through memory.
#pragma once

#include "moelink/device/moe/line_partials.cuh"
#include "moelink/device/primitives/sparse_rows.cuh"

namespace moelink {

#if MOELINK_ON_DEVICE

/// By the block: units [begin, end) of the weighted sum of a token's rows here, rounded; store(unit, partial) takes
/// each.
template <class Exec, class S, class Store>
MOELINK_DEVICE void sum_own_rows(const Exec& ex, S, const RowSum& sum, int begin, int end, Store&& store) {
  using Units = PartialUnits<S{}()>;
  SparseRows<S{}(), Units::kUnit> rows(sum);
  rows.load(ex);
  const int step = ex.num_threads();
  // All threads go round together: rows are dealt out by whole warps.
  const auto sum_units = [&]<int kUnits>(int first) {
    const int unit = first + ex.thread();
    float totals[kUnits][Units::kUnit] = {};
    rows.template add_to<kUnits>(totals, unit, step, end);
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      if (unit + u * step >= end) continue;
      typename Units::Partial rounded;
      rounded.from_floats(totals[u]);
      store(unit + u * step, rounded);
    }
  };
  int first = begin;
  MOELINK_NO_UNROLL
  for (; first + step < end; first += Units::kUnits * step) sum_units.template operator()<Units::kUnits>(first);
  if (first < end) sum_units.template operator()<1>(first);
}

/// By the block: elements [begin, end), multiples of kPartialUnit or the row's end, of the sum of a token's rows here,
/// to its output; as lines if there is a tag.
template <class Exec, class S>
MOELINK_DEVICE void store_own_partial(const Exec& ex, S spec, const RowSum& sum, int begin, int end, u32 line_tag) {
  using Units = PartialUnits<S{}()>;
  sum_own_rows(ex, spec, sum, begin / Units::kUnit, end / Units::kUnit,
               [&](int unit, const typename Units::Partial& partial) {
                 const i64 offset_bytes = static_cast<i64>(unit) * Units::kBytes;
                 if (line_tag != 0) {
                   partial.store_lines(sum.output, offset_bytes, line_tag);
                 } else {
                   partial.store(sum.output + offset_bytes);
                 }
               });
}

/// By the block: elements [begin, end), multiples of kPartialUnit or the row's end, at least one. `arrived()`, by the
/// whole block once its own rows are summed (of what does not fit in `held`, later), says whether the other ranks'
/// partials may be read; false: nothing is written. Of partials that are lines each thread waits for its own; false, in
/// this thread: they did not come.
template <class Exec, class S, class Arrived>
MOELINK_DEVICE bool sum_partials(const Exec& ex, S spec, const PartialSum& sum, const ResultCopies& copies, int begin,
                                 int end, const HeldPartial& held, Arrived&& arrived) {
  constexpr auto kSpec = S{}();
  using Units = PartialUnits<kSpec>;
  using Partial = typename Units::Partial;
  constexpr int kUnit = Units::kUnit;
  constexpr int kUnits = Units::kUnitsOfSum;
  constexpr int kPartialBytes = Units::kBytes;
  constexpr int kOutBytes = kUnit * bytes_of(kSpec.output);
  constexpr int kRanksAtOnce = min_of(kSpec.num_ranks, max_of(48 / kPartialBytes, 2));

  i32 slots[kRanksAtOnce];
  const auto load_slots = [&](int first) {
    MOELINK_UNROLL
    for (int j = 0; j < kRanksAtOnce; ++j) {
      if (first + j < kSpec.num_ranks) slots[j] = sum.slot_of_rank[first + j];
    }
  };
  load_slots(0);
  const bool has_own = sum.own.indices != nullptr;
  bool is_whole = true;

  const int step = ex.num_threads();
  const int units_held = held.size_bytes / kPartialBytes / step * step;
  for (int base = begin / kUnit; base < end / kUnit; base += units_held) {
    const int stop = min_of(base + units_held, end / kUnit);
    if (has_own) {
      sum_own_rows(ex, spec, sum.own, base, stop, [&](int unit, const Partial& partial) {
        partial.store_scratch(held.bytes + (unit - base) * kPartialBytes);
      });
    }
    if (base == begin / kUnit && !arrived()) return false;
    if (kSpec.may_have_lines() && sum.lines != nullptr) {
      // After a fault the loops go on: sums of own rows want whole warps.
      for (int unit = base + ex.thread(); unit < stop; unit += step) {
        const u8* own = held.bytes + (unit - base) * kPartialBytes;
        is_whole = is_whole && sum_line_partials(spec, sum, copies, unit, own);
      }
      continue;
    }

    for (int unit = base + ex.thread(); unit < stop; unit += kUnits * step) {
      float totals[kUnits][kUnit];
      Elements<kSpec.output, kUnit> results[kUnits];
      const auto exists = [&](int u) { return unit + u * step < stop; };
      const auto out_bytes = [&](int u) { return static_cast<i64>(unit + u * step) * kOutBytes; };
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        MOELINK_UNROLL
        for (int i = 0; i < kUnit; ++i) totals[u][i] = 0.0F;
        if (!sum.own.accumulate || !exists(u)) continue;
        results[u].load(sum.own.output + out_bytes(u));
        results[u].to_floats(totals[u]);
      }
      for (int first = 0; first < kSpec.num_ranks; first += kRanksAtOnce) {
        if constexpr (kSpec.num_ranks > kRanksAtOnce) load_slots(first);
        Partial partials[kUnits][kRanksAtOnce];
        const auto skips = [&](int j, int u) {
          return first + j >= kSpec.num_ranks || static_cast<u32>(slots[j]) >= sum.slots || !exists(u);
        };
        MOELINK_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          MOELINK_UNROLL
          for (int j = 0; j < kRanksAtOnce; ++j) {
            const int rank = first + j;
            if (skips(j, u)) continue;
            if (rank == sum.rank) {
              partials[u][j].load_scratch(held.bytes + (unit + u * step - base) * kPartialBytes);
            } else {
              partials[u][j].load_from_peer(partial_of(spec, sum, rank, slots[j]) +
                                            static_cast<i64>(unit + u * step) * kPartialBytes);
            }
          }
        }
        MOELINK_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          MOELINK_UNROLL
          for (int j = 0; j < kRanksAtOnce; ++j) {
            if (skips(j, u)) continue;
            float values[kUnit];
            partials[u][j].to_floats(values);
            MOELINK_UNROLL
            for (int i = 0; i < kUnit; ++i) totals[u][i] = add_rn(totals[u][i], values[i]);
          }
        }
      }
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        if (!exists(u)) continue;
        results[u].from_floats(totals[u]);
        results[u].store(sum.own.output + out_bytes(u));
        if constexpr (kSpec.tp_size > 1) {
          MOELINK_UNROLL
          for (int v = 0; v < results[u].kVectors; ++v) copies.store(out_bytes(u) + v * 16, results[u].vectors[v]);
        }
      }
    }
  }
  return is_whole;
}

#else

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

/// Elements [begin, end) of the sum of a token's rows here, to its output.
/// As lines if there is a tag.
template <class Exec, class S>
void store_own_partial(const Exec& ex, S spec, const RowSum& sum, i64 begin, i64 end, u32 line_tag) {
  if (line_tag == 0) return reduce_range(ex, PartialSpec<S>{spec}, sum, begin, end);
  const i64 element_bytes = bytes_of(spec().partial);
  alignas(64) u8 tile[kHostTileElements * 4];
  for (i64 first = begin; first < end; first += kHostTileElements) {
    const i64 count = min_of(kHostTileElements, end - first);
    RowSum sum_of_tile = sum;
    sum_of_tile.output = tile - first * element_bytes;
    reduce_range(ex, PartialSpec<S>{spec}, sum_of_tile, first, first + count);
    for (i64 at = 0; at < count * element_bytes; at += 16) {
      u8* const lines = sum.output + kLineExpansion * (first * element_bytes + at);
      st_lines_sys(lines, *reinterpret_cast<const Vec16*>(tile + at), line_tag);
    }
  }
}

template <class Exec, class S, class Arrived>
bool sum_partials(const Exec&, S spec, const PartialSum& sum, const ResultCopies& copies, i64 begin, i64 end,
                  const HeldPartial& held, Arrived&& arrived) {
  if (begin >= end) return true;
  if (!arrived()) return false;
  const i64 in_bytes = bytes_of(spec().input);
  const i64 partial_bytes = bytes_of(spec().partial);
  const i64 out_bytes = bytes_of(spec().output);
  alignas(64) u8 own[kHostTileElements * 4];
  // `held`: a pointer per rank.
  const auto slot_of = [&](int rank) -> i64 { return sum.slot_of_rank[rank]; };
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
    const u8** partials = reinterpret_cast<const u8**>(held.bytes);
    for (int rank = 0; rank < spec().num_ranks; ++rank) {
      const i64 slot = slot_of(rank);
      const bool are_lines = sum.lines != nullptr;
      const i64 end_slot = are_lines ? sum.lines->shape.line_tokens : sum.slots;
      const bool exists = static_cast<u64>(slot) < static_cast<u64>(end_slot);
      if (exists && rank != sum.rank && are_lines &&
          !unpack_partial(spec, sum, rank, slot, first * partial_bytes, (first + count) * partial_bytes)) {
        return false;
      }
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
