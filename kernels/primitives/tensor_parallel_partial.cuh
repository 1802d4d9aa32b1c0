// A rank's parts of sums, unit by unit: its rows of a token, k ascending, then its shared row, product and sum each
// rounded, in fp32. Rank 0's has what `output` holds in front, if that is to be added: (output + sum). Then the part is
// rounded to the type in which it travels, also for its own rank. Units of all tokens are numbered one token behind the
// other.
#pragma once

#include "moelink/device/all_reduce/sum.cuh"
#include "moelink/device/primitives/row_reduce.cuh"
#include "moelink/device/primitives/sparse_rows.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

/// A unit of values on its way.
template <int kElementsOfUnit, Element kTypeOfParts>
struct TpUnit {
  static constexpr int kElements = kElementsOfUnit;
  static constexpr Element kType = kTypeOfParts;
  static constexpr int kBytes = kElements * bytes_of(kType);
  static constexpr int kVectors = kBytes / 16;
  Vec16 vectors[kVectors];

  MOELINK_DEVICE static TpUnit rounded(const float* values) {
    TpUnit unit;
#if MOELINK_ON_DEVICE
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) unit.vectors[v] = pack<kType>(values + v * (kElements / kVectors));
#else
    host_convert_tile<kType>(unit.vectors, values, kElements);
#endif
    return unit;
  }
};

/// Calls body(a unit's type): one instance is compiled on a GPU, a few on the host.
template <class S, class Body>
MOELINK_DEVICE void with_tp_unit(S spec, Body&& body) {
#if MOELINK_ON_DEVICE
  (void)spec;
  body(TpUnit<tp_unit_elements(S{}().hidden), S{}().part>{});
#else
  if (tp_unit_elements(spec().hidden) == 4) return body(TpUnit<4, Element::float32>{});
  with_element(spec().part, [&](auto part) { body(TpUnit<8, part()>{}); });
#endif
}

/// Which units of the tokens of one call hold something.
struct TpUnits {
  i64 per_row;
  i64 bound;  ///< of the tokens that the host knows of: addresses below it are legal
  i64 live;   ///< of the tokens that there are

  template <class Unit, class S>
  MOELINK_DEVICE static TpUnits of(S spec, const TensorParallelArgs& args) {
    const i64 per_row = spec().hidden / Unit::kElements;
    const i64 num_tokens = args.combine.num_tokens;
    return {per_row, per_row * num_tokens, per_row * min_of<i64>(*args.combine.num_tokens_snapshot, num_tokens)};
  }
};

MOELINK_DEVICE u8* tp_output_row(const TensorParallelArgs& args, i64 token) {
  return static_cast<u8*>(args.combine.output) + token * args.combine.output_stride_bytes;
}
MOELINK_DEVICE const u8* tp_shared_row(const TensorParallelArgs& args, i64 token) {
  return static_cast<const u8*>(args.combine.shared) + token * args.combine.shared_stride_bytes;
}
MOELINK_DEVICE bool tp_adds_output(const TensorParallelArgs& args) {
  return args.combine.accumulate != 0 && args.window.rank == 0;
}

/// A unit of complete sums, in the type of the output.
template <class Unit, class S>
struct TpResult {
  Vec16 vectors[Unit::kElements / 4] = {};

  /// `sums`: rounded to the type of parts, which is that of the output, or fp32.
  MOELINK_DEVICE static TpResult of(S spec, const Vec16* sums) {
    TpResult result;
    if (Unit::kType != Element::float32 || spec().output == Element::float32) {
      MOELINK_UNROLL
      for (int v = 0; v < Unit::kVectors; ++v) result.vectors[v] = sums[v];
      return result;
    }
    if constexpr (Unit::kType == Element::float32) {
      float values[Unit::kElements];
      MOELINK_UNROLL
      for (int v = 0; v < Unit::kVectors; ++v) {
        values[4 * v] = float_from_bits(sums[v].x);
        values[4 * v + 1] = float_from_bits(sums[v].y);
        values[4 * v + 2] = float_from_bits(sums[v].z);
        values[4 * v + 3] = float_from_bits(sums[v].w);
      }
#if MOELINK_ON_DEVICE
      if constexpr (S{}().output != Element::float32) result.vectors[0] = pack<S{}().output>(values);
#else
      with_element(spec().output,
                   [&](auto element) { host_convert_tile<element()>(result.vectors, values, Unit::kElements); });
#endif
    }
    return result;
  }

  MOELINK_DEVICE static int num_vectors(S spec) { return Unit::kElements * bytes_of(spec().output) / 16; }

  /// To unit `in_row` of a token's output.
  MOELINK_DEVICE void store(S spec, const TensorParallelArgs& args, i64 token, i64 in_row) const {
    u8* const to = tp_output_row(args, token) + in_row * num_vectors(spec) * 16;
    MOELINK_UNROLL
    for (int v = 0; v < Unit::kElements / 4; ++v) {
      if (v < num_vectors(spec)) st_v4(to + v * 16, vectors[v]);
    }
  }
};

/// The rows of one token.
template <class S>
MOELINK_DEVICE RowSum tp_row_sum(S spec, const TensorParallelArgs& args, i64 token) {
  const i64 first_entry = token * spec().top_k;
  return {.rows = static_cast<const u8*>(args.combine.expert_output),
          .row_stride_bytes = args.combine.expert_output_stride_bytes,
          .num_rows = static_cast<u32>(min_of(args.combine.expert_output_rows, static_cast<i64>(0x7fffffff))),
          .indices = args.combine.row_of_entry + first_entry,
          .weights = args.combine.weighted != 0 ? args.combine.weight_of_entry + first_entry : nullptr,
          .shared = args.combine.shared == nullptr ? nullptr : tp_shared_row(args, token),
          .output = nullptr,
          .accumulate = false,
          .num_tokens = args.combine.num_tokens_snapshot,
          .token = static_cast<i32>(token),
          .streaming = false};
}

#if MOELINK_ON_DEVICE

/// What comes behind the rows of a unit, the shared row and the output, to `kUnits` of one token: unit + u * step each,
/// below `end`. Loads have no conditions but those that a whole grid shares (primitives/sparse_rows.cuh).
template <int kUnits, class Unit, class S>
MOELINK_DEVICE void add_shared_and_output(S spec, const TensorParallelArgs& args, i64 token, int unit, int step,
                                          int end, float (*totals)[Unit::kElements]) {
  constexpr auto kSpec = S{}();
  constexpr int kElements = Unit::kElements;
  const auto place = [&](int u) { return static_cast<i64>(min_of(unit + u * step, end - 1)) * kElements; };
  if (args.combine.shared != nullptr) {
    Elements<kSpec.input, kElements> rows[kUnits];
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      rows[u].load_once(tp_shared_row(args, token) + place(u) * bytes_of(kSpec.input));
    }
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      float values[kElements];
      rows[u].to_floats(values);
      MOELINK_UNROLL
      for (int i = 0; i < kElements; ++i) totals[u][i] = add_rn(totals[u][i], values[i]);
    }
  }
  if (tp_adds_output(args)) {
    Elements<kSpec.output, kElements> before[kUnits];
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) before[u].load(tp_output_row(args, token) + place(u) * bytes_of(kSpec.output));
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      float values[kElements];
      before[u].to_floats(values);
      MOELINK_UNROLL
      for (int i = 0; i < kElements; ++i) totals[u][i] = add_rn(values[i], totals[u][i]);
    }
  }
}

/// By the block: visit(i, part) with the part of unit first + i, for i below `count`, each by one thread; zeros past
/// the live units.
template <class Unit, class Exec, class S, class Visit>
MOELINK_DEVICE void for_each_part(const Exec& ex, S spec, const TensorParallelArgs& args, const TpUnits& units,
                                  i64 first, i32 count, Visit&& visit) {
  constexpr auto kSpec = S{}();
  constexpr i64 kPerRow = kSpec.hidden / Unit::kElements;
  for (i32 i = ex.thread(); i < count; i += ex.num_threads()) {
    const i64 unit = first + i;
    float values[1][Unit::kElements] = {};
    if (unit < units.bound) {
      const i64 token = unit / kPerRow;
      const i32 in_row = static_cast<i32>(unit - token * kPerRow);
      const RowSum sum = tp_row_sum(spec, args, token);
      HeldRows<kSpec, Unit::kElements> rows;
      rows.load(sum);
      rows.add_to(values[0], sum, in_row);
      add_shared_and_output<1, Unit>(spec, args, token, in_row, 0, static_cast<int>(kPerRow), values);
      if (unit >= units.live) {
        MOELINK_UNROLL
        for (int j = 0; j < Unit::kElements; ++j) values[0][j] = 0.0F;
      }
    }
    visit(i, Unit::rounded(values[0]));
  }
}

/// The parts of tiles, a warp's each: kTileUnits units of one row, the last of a row fewer. What a tile's rows are is
/// asked for while those of the one before are summed.
template <class Unit, int kTileUnits, class Exec, class S>
class TileParts {
  static constexpr int kElements = Unit::kElements;
  static constexpr int kUnits = kTileUnits / Exec::kWarpSize;
  static constexpr int kPerRow = static_cast<int>(S{}().hidden / kElements);
  static constexpr i64 kTilesPerRow = (kPerRow + kTileUnits - 1) / kTileUnits;
  using Rows = SparseRows<S{}(), kElements>;
  /// 128 bytes of rows are under way in each thread.
  static constexpr int kRows = min_of(S{}().top_k, max_of(128 / (Rows::kBytes * kUnits), 1));

 public:
  /// `first`: the first tile of this warp's first call.
  MOELINK_DEVICE TileParts(const Exec& ex, S spec, const TensorParallelArgs& args, i64 first)
      : ex_(ex), spec_(spec), args_(args), sum_(tp_row_sum(spec, args, 0)) {
    fetch(first);
  }

  /// visit(tile, token, unit of its row, part) for all units of this warp's tiles first, first + stride, ... below
  /// `end`, which hold live tokens. `next`: the first tile of the next call.
  template <class Visit>
  MOELINK_DEVICE void for_each(i64 first, i64 stride, i64 end, i64 next, Visit&& visit) {
    Rows rows(sum_);
    for (i64 tile = first; tile < end; tile += stride) {
      rows.hold(entry_);
      fetch(tile + stride < end ? tile + stride : next);
      const i64 token = tile / kTilesPerRow;
      const int begin = static_cast<int>(tile - token * kTilesPerRow) * kTileUnits;
      const int stop = min_of(begin + kTileUnits, kPerRow);
      const int unit = begin + ex_.lane();
      float totals[kUnits][kElements] = {};
      rows.template add_to<kUnits, kRows>(totals, unit, Exec::kWarpSize, stop);
      add_shared_and_output<kUnits, Unit>(spec_, args_, token, unit, Exec::kWarpSize, stop, totals);
      MOELINK_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        const int in_row = unit + u * Exec::kWarpSize;
        if (in_row < stop) visit(tile, token, in_row, Unit::rounded(totals[u]));
      }
    }
  }

 private:
  MOELINK_DEVICE void fetch(i64 tile) {
    const i64 token = tile / kTilesPerRow;
    if (token >= args_.combine.num_tokens) return;
    const i64 entry = token * spec_().top_k;
    entry_ = Rows::fetch(ex_, sum_.indices + entry, sum_.weights == nullptr ? nullptr : sum_.weights + entry);
  }

  const Exec& ex_;
  S spec_;
  const TensorParallelArgs& args_;
  RowSum sum_;  ///< of the first token
  typename Rows::Entry entry_;
};

#else

/// The sum of the local combine, left in fp32.
template <class S>
struct TpSumSpec {
  S spec;
  constexpr LocalCombineSpec operator()() const {
    return {.hidden = spec().hidden, .top_k = spec().top_k, .input = spec().input, .output = Element::float32};
  }
};

/// Units [first, first + count) of a token's row, not yet rounded.
template <class Unit, class Exec, class S>
void sum_tp_row(const Exec& ex, S spec, const TensorParallelArgs& args, i64 token, i64 first, i64 count, float* sums) {
  const i64 begin = first * Unit::kElements;
  const i64 elements = count * Unit::kElements;
  RowSum sum = tp_row_sum(spec, args, token);
  sum.output = reinterpret_cast<u8*>(sums - begin);  // element `begin` is the first of `sums`
  reduce_range(ex, TpSumSpec<S>{spec}, sum, begin, begin + elements);
  if (!tp_adds_output(args)) return;
  const u8* before = tp_output_row(args, token) + begin * bytes_of(spec().output);
  for (i64 i = 0; i < elements; ++i) sums[i] = host_load_element(before, spec().output, i) + sums[i];
}

template <class Unit, class Exec, class S, class Visit>
void for_each_part(const Exec& ex, S spec, const TensorParallelArgs& args, const TpUnits& units, i64 first, i32 count,
                   Visit&& visit) {
  constexpr i64 kAtOnce = 64;
  alignas(16) float sums[kAtOnce * Unit::kElements];
  for (i64 at = first; at < first + count;) {
    // A piece of one token's row, or what lies past the tokens.
    const i64 token = at / units.per_row;
    const bool is_live = at < units.live;
    const i64 end = is_live ? min_of(first + count, (token + 1) * units.per_row) : first + count;
    const i64 piece = min_of(end - at, kAtOnce);
    if (is_live) {
      sum_tp_row<Unit>(ex, spec, args, token, at - token * units.per_row, piece, sums);
    } else {
      std::memset(sums, 0, sizeof(sums));
    }
    for (i64 i = 0; i < piece; ++i) {
      visit(static_cast<i32>(at - first + i), Unit::rounded(sums + i * Unit::kElements));
    }
    at += piece;
  }
}

template <class Unit, int kTileUnits, class Exec, class S>
class TileParts {
 public:
  TileParts(const Exec& ex, S spec, const TensorParallelArgs& args, i64) : ex_(ex), spec_(spec), args_(args) {}

  template <class Visit>
  void for_each(i64 first, i64 stride, i64 end, i64, Visit&& visit) {
    const i64 per_row = spec_().hidden / Unit::kElements;
    const i64 tiles_per_row = ceil_div(per_row, i64{kTileUnits});
    alignas(16) float sums[kTileUnits * Unit::kElements];
    for (i64 tile = first; tile < end; tile += stride) {
      const i64 token = tile / tiles_per_row;
      const i64 begin = (tile - token * tiles_per_row) * kTileUnits;
      const i64 count = min_of(i64{kTileUnits}, per_row - begin);
      sum_tp_row<Unit>(ex_, spec_, args_, token, begin, count, sums);
      for (i64 i = 0; i < count; ++i) {
        visit(tile, token, static_cast<int>(begin + i), Unit::rounded(sums + i * Unit::kElements));
      }
    }
  }

 private:
  const Exec& ex_;
  S spec_;
  const TensorParallelArgs& args_;
};

#endif

}  // namespace moelink
