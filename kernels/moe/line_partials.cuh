// Partials of few tokens, which come as lines (protocol/nvlink_lines.hpp): added by the threads that wait for them.
#pragma once

#include "moelink/device/moe/partial_rows.cuh"
#include "moelink/device/primitives/line_rows.cuh"

namespace moelink {

/// Those of a rank that come as lines.
template <class S>
MOELINK_DEVICE u8* line_partials(S spec, const NvlinkCombineArgs& args, i32 holder, i32 sender) {
  return args.window.template at<u8>(holder, args.layout.line_partials.offset_bytes, spec().num_ranks) +
         i64{sender} * args.shape.line_tokens * kLineExpansion * args.shape.partial_pitch_bytes;
}

#if MOELINK_ON_DEVICE

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

/// By one thread: one unit of a token's sum where partials are lines; `own`: that of this rank, in block scratch.
/// False: a fault, and nothing is written.
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
      slots[j] = rank < kSpec.num_ranks ? sum.slot_of_rank[rank] : -1;
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

#else

/// Lines of a peer's partial to where it would have stored it itself; `slot` is below line_tokens. False: a fault.
template <class S>
bool unpack_partial(S spec, const PartialSum& sum, int rank, i64 slot, i64 begin_bytes, i64 end_bytes) {
  const u8* lines = line_partials(spec, *sum.lines, sum.rank, rank) + slot * kLineExpansion * sum.pitch_bytes;
  u8* const to = const_cast<u8*>(partial_of(spec, sum, rank, slot));
  for (i64 at = begin_bytes; at < end_bytes; at += 16) {
    const u8* from = lines + kLineExpansion * at;
    if (!wait_for_lines(sum.lines->fault, FaultPhase::combine_receive, rank, sum.epoch, from)) return false;
    *reinterpret_cast<Vec16*>(to + at) = LinesSeen::at(from).value();
  }
  return true;
}

#endif

}  // namespace moelink
