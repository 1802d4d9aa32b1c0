// One token's output from the partial sums of several ranks: fp32, ranks ascending, one rounding at the end. This
// rank's own partial is computed on the way from its rows, with the rounding that the others' had, and takes no trip
// through memory.
#pragma once

#include "moelink/device/moe/remotes.cuh"
#include "moelink/device/primitives/line_rows.cuh"
#include "moelink/device/primitives/row_reduce.cuh"
#include "moelink/device/primitives/sparse_rows.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// One token's sum. Addresses are multiples of 16 bytes.
struct PartialSum {
  RowSum own;          ///< this rank's rows; its output is the token's whole row, its token and num_tokens are not used
  const u8* partials;  ///< that of peer number d is at partials + (d * slots + its slot) * pitch
  i64 pitch_bytes;
  const RemoteArgs* remote;  ///< where those of remotes are
  const i32* slot_of_rank;   ///< [num_ranks], `stride` apart: outside [0, slots): that rank has nothing
  i64 stride;
  i64 slots;
  i32 rank;                        ///< this one: its slot says whether it has rows
  const NvlinkCombineArgs* lines;  ///< partials are lines of `epoch`; null: they are rows
  u64 epoch;
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

/// Those of a rank that come as lines.
template <class S>
MOELINK_DEVICE u8* line_partials(S spec, const NvlinkCombineArgs& args, i32 holder, i32 sender) {
  return args.window.template at<u8>(holder, args.layout.line_partials.offset_bytes, spec().num_ranks) +
         i64{sender} * args.shape.line_tokens * kLineExpansion * args.shape.partial_pitch_bytes;
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

/// Block scratch that keeps what a block has summed of one row of its own, as much as fits. (Not used on the host.)
struct HeldPartial {
  u8* bytes;
  i32 size_bytes;  ///< at least what all threads hold at once
};

#if MOELINK_ON_DEVICE

/// How a rank's partial sums are computed and added: kUnit elements at once, kUnits times a thread.
template <auto kSpec>
struct PartialUnits {
  static constexpr bool kAllFloats =
      kSpec.input == Element::float32 && kSpec.partial == Element::float32 && kSpec.output == Element::float32;
  static constexpr int kUnit = kAllFloats ? 4 : 8;
  static constexpr int kUnits = 4;
  static constexpr int kUnitsOfSum = 2;
  static constexpr int kBytes = kUnit * bytes_of(kSpec.partial);
  using Partial = Elements<kSpec.partial, kUnit>;
};

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

/// Partials of peers that are lines, of up to kCount ranks: looked at together, then waited for one by one.
template <class Partial, int kCount>
class LinePartials {
 public:
  MOELINK_DEVICE void look(int j, const u8* lines) {
    lines_[j] = lines;
    MOELINK_UNROLL
    for (int v = 0; v < Partial::kVectors; ++v) seen_[j][v] = LinesSeen::at(lines + kLineExpansion * v * 16);
  }
  /// Partial j, which comes from rank `peer`. False: a fault.
  [[nodiscard]] MOELINK_DEVICE bool read(int j, const PartialSum& sum, i32 peer, Partial& partial) {
    MOELINK_UNROLL
    for (int v = 0; v < Partial::kVectors; ++v) {
      const u8* lines = lines_[j] + kLineExpansion * v * 16;
      if (!seen_[j][v].have(tag_of(sum.epoch))) {
        if (!wait_for_lines(sum.lines->fault, FaultPhase::combine_receive, peer, sum.epoch, lines)) return false;
        seen_[j][v] = LinesSeen::at(lines);
      }
      partial.vectors[v] = seen_[j][v].value();
    }
    return true;
  }

 private:
  const u8* lines_[kCount];
  LinesSeen seen_[kCount][Partial::kVectors];
};

/// By one thread: one unit of a token's sum where partials are lines; `own`: that of this rank, in block scratch. False: a
/// fault, and nothing is written.
template <class S>
MOELINK_DEVICE bool sum_line_partials(S spec, const PartialSum& sum, const ResultCopies& copies, int unit,
                                      const u8* own) {
  constexpr auto kSpec = S{}();
  using Units = PartialUnits<kSpec>;
  constexpr int kUnit = Units::kUnit;
  constexpr int kAtOnce = min_of(kSpec.num_ranks, 2);
  const NvlinkCombineArgs& args = *sum.lines;
  u8* const output = sum.own.output + static_cast<i64>(unit) * kUnit * bytes_of(kSpec.output);
  float total[kUnit] = {};
  Elements<kSpec.output, kUnit> result;
  if (sum.own.accumulate) {
    result.load(output);
    result.to_floats(total);
  }
  MOELINK_NO_UNROLL
  for (int first = 0; first < kSpec.num_ranks; first += kAtOnce) {
    LinePartials<typename Units::Partial, kAtOnce> lines;
    i64 slots[kAtOnce];
    MOELINK_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      const int rank = first + j;
      slots[j] = rank < kSpec.num_ranks ? sum.slot_of_rank[rank * sum.stride] : -1;
      if (static_cast<u64>(slots[j]) >= static_cast<u64>(args.shape.line_tokens)) slots[j] = -1;
      if (slots[j] < 0 || rank == sum.rank) continue;
      lines.look(
          j, line_partials(spec, args, sum.rank, rank) +
                 (slots[j] * args.shape.partial_pitch_bytes + static_cast<i64>(unit) * Units::kBytes) * kLineExpansion);
    }
    MOELINK_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      if (slots[j] < 0) continue;
      typename Units::Partial partial;
      if (first + j == sum.rank) {
        partial.load_scratch(own);
      } else if (!lines.read(j, sum, first + j, partial)) {
        return false;
      }
      float values[kUnit];
      partial.to_floats(values);
      MOELINK_UNROLL
      for (int i = 0; i < kUnit; ++i) total[i] = add_rn(total[i], values[i]);
    }
  }
  result.from_floats(total);
  result.store(output);
  if constexpr (kSpec.tp_size > 1) {
    const i64 at_bytes = static_cast<i64>(unit) * kUnit * bytes_of(kSpec.output);
    for (int v = 0; v < result.kVectors; ++v) copies.store(at_bytes + v * 16, result.vectors[v]);
  }
  return true;
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
      if (first + j < kSpec.num_ranks) slots[j] = sum.slot_of_rank[(first + j) * sum.stride];
    }
  };
  load_slots(0);
  const bool has_own = sum.own.indices != nullptr;

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
      for (int unit = base + ex.thread(); unit < stop; unit += step) {
        const u8* own = held.bytes + (unit - base) * kPartialBytes;
        if (!sum_line_partials(spec, sum, copies, unit, own)) return false;
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
  return true;
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

/// Lines of a peer's partial to where it would have stored it itself.
template <class S>
bool unpack_partial(S spec, const PartialSum& sum, int rank, i64 slot, i64 begin_bytes, i64 end_bytes) {
  if (slot >= sum.lines->shape.line_tokens) return true;
  const u8* lines = line_partials(spec, *sum.lines, sum.rank, rank) + slot * kLineExpansion * sum.pitch_bytes;
  u8* const to = const_cast<u8*>(partial_of(spec, sum, rank, slot));
  for (i64 at = begin_bytes; at < end_bytes; at += 16) {
    const u8* from = lines + kLineExpansion * at;
    if (!wait_for_lines(sum.lines->fault, FaultPhase::combine_receive, rank, sum.epoch, from)) return false;
    *reinterpret_cast<Vec16*>(to + at) = LinesSeen::at(from).value();
  }
  return true;
}

template <class Exec, class S, class Arrived>
bool sum_partials(const Exec& ex, S spec, const PartialSum& sum, const ResultCopies& copies, i64 begin, i64 end,
                  const HeldPartial&, Arrived&& arrived) {
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
      if (exists && rank != sum.rank && sum.lines != nullptr &&
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
