// A rank's fp32 partial sums, unit by unit: its rows of a token, k ascending, then its shared row, product and sum each
// rounded. Rank 0's starts from what `output` holds, if that is to be added: (output + sum). Units of all tokens are
// numbered one token behind the other.
#pragma once

#include "moelink/device/primitives/row_reduce.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

/// Which units of the tokens of one call hold something.
struct TpUnits {
  i64 per_row;
  i64 bound;  ///< of the tokens that the host knows of: addresses below it are legal
  i64 live;   ///< of the tokens that there are

  template <int kUnit, class S>
  MOELINK_DEVICE static TpUnits of(S spec, const TensorParallelArgs& args) {
    const i64 per_row = spec().hidden / kUnit;
    const i64 num_tokens = args.combine.num_tokens;
    return {per_row, per_row * num_tokens, per_row * min_of<i64>(*args.combine.num_tokens_snapshot, num_tokens)};
  }
};

MOELINK_DEVICE u8* tp_output_row(const TensorParallelArgs& args, i64 token) {
  return static_cast<u8*>(args.combine.output) + token * args.combine.output_stride_bytes;
}
MOELINK_DEVICE bool tp_adds_output(const TensorParallelArgs& args) {
  return args.combine.accumulate != 0 && args.window.rank == 0;
}

/// The rows of one token.
template <class S>
MOELINK_DEVICE RowSum tp_row_sum(S spec, const TensorParallelArgs& args, i64 token) {
  const i64 first_entry = token * spec().top_k;
  return {.rows = static_cast<const u8*>(args.combine.expert_output),
          .row_stride_bytes = args.combine.expert_output_stride_bytes,
          .num_rows = static_cast<u32>(min_of(args.combine.expert_output_rows, static_cast<i64>(0x7fffffff))),
          .indices = args.combine.row_of_entry + first_entry,
          .weights = args.combine.weighted != 0 ? args.combine.weight_of_entry + first_entry : nullptr,
          .shared = args.combine.shared == nullptr
                        ? nullptr
                        : static_cast<const u8*>(args.combine.shared) + token * args.combine.shared_stride_bytes,
          .output = nullptr,
          .accumulate = false,
          .num_tokens = args.combine.num_tokens_snapshot,
          .token = static_cast<i32>(token),
          .streaming = false};
}

#if MOELINK_ON_DEVICE

/// By the block: visit(i, values) with the partial sum of unit first + i, for i below `count`, each by one thread; zeros
/// past the live units.
template <int kUnit, class Exec, class S, class Visit>
MOELINK_DEVICE void for_each_partial(const Exec& ex, S spec, const TensorParallelArgs& args, const TpUnits& units,
                                     i64 first, i32 count, Visit&& visit) {
  constexpr auto kSpec = S{}();
  constexpr i64 kPerRow = kSpec.hidden / kUnit;
  for (i32 i = ex.thread(); i < count; i += ex.num_threads()) {
    const i64 unit = first + i;
    float values[kUnit];
    MOELINK_UNROLL
    for (int j = 0; j < kUnit; ++j) values[j] = 0.0F;
    if (unit < units.bound) {
      const i64 token = unit / kPerRow;
      const i64 in_row = unit - token * kPerRow;
      if constexpr (kSpec.source == TpSource::rows) {
        const RowSum sum = tp_row_sum(spec, args, token);
        HeldRows<kSpec, kUnit> rows;
        rows.load(sum);
        rows.add_to(values, sum, static_cast<int>(in_row));
        if (sum.shared != nullptr) {
          Elements<kSpec.input, kUnit> row;
          float more[kUnit];
          row.load_once(sum.shared + in_row * (kUnit * bytes_of(kSpec.input)));
          row.to_floats(more);
          MOELINK_UNROLL
          for (int j = 0; j < kUnit; ++j) values[j] = add_rn(values[j], more[j]);
        }
      } else {
        Elements<Element::float32, kUnit> partial;
        partial.load_once(reinterpret_cast<const u8*>(args.partials + unit * kUnit));
        partial.to_floats(values);
      }
      if (tp_adds_output(args)) {
        Elements<kSpec.output, kUnit> before;
        float start[kUnit];
        before.load(tp_output_row(args, token) + in_row * (kUnit * bytes_of(kSpec.output)));
        before.to_floats(start);
        MOELINK_UNROLL
        for (int j = 0; j < kUnit; ++j) values[j] = add_rn(start[j], values[j]);
      }
      if (unit >= units.live) {
        MOELINK_UNROLL
        for (int j = 0; j < kUnit; ++j) values[j] = 0.0F;
      }
    }
    visit(i, values);
  }
}

/// Rounds one unit of complete sums.
template <int kUnit, class S>
struct RoundedUnit {
  Elements<S{}().output, kUnit> elements;

  MOELINK_DEVICE RoundedUnit(S, const float* sums) { elements.from_floats(sums); }
  MOELINK_DEVICE void store(u8* address) const { elements.store(address); }
};

#else

/// The sum of the local combine, left in fp32.
template <class S>
struct TpPartialSpec {
  S spec;
  constexpr LocalCombineSpec operator()() const {
    return {.hidden = spec().hidden, .top_k = spec().top_k, .input = spec().input, .output = Element::float32};
  }
};

template <int kUnit, class Exec, class S, class Visit>
void for_each_partial(const Exec& ex, S spec, const TensorParallelArgs& args, const TpUnits& units, i64 first,
                      i32 count, Visit&& visit) {
  constexpr i64 kTileUnits = 64;
  alignas(16) float sums[kTileUnits * kUnit];
  for (i64 at = first; at < first + count;) {
    // A piece of one token's row, or what lies past the tokens.
    const i64 token = at / units.per_row;
    const i64 in_row = at - token * units.per_row;
    const bool is_live = at < units.live;
    const i64 end = min_of(first + count, is_live ? (token + 1) * units.per_row : first + count);
    const i64 piece = min_of(end - at, kTileUnits);
    const i64 elements = piece * kUnit;
    if (!is_live) {
      std::memset(sums, 0, sizeof(sums));
    } else if (spec().source == TpSource::partials) {
      std::memcpy(sums, args.partials + at * kUnit, static_cast<std::size_t>(elements) * sizeof(float));
    } else {
      RowSum sum = tp_row_sum(spec, args, token);
      sum.output = reinterpret_cast<u8*>(sums - in_row * kUnit);  // element in_row * kUnit is the first of the tile
      reduce_range(ex, TpPartialSpec<S>{spec}, sum, in_row * kUnit, in_row * kUnit + elements);
    }
    if (is_live && tp_adds_output(args)) {
      const u8* before = tp_output_row(args, token) + in_row * kUnit * bytes_of(spec().output);
      for (i64 i = 0; i < elements; ++i) sums[i] = host_load_element(before, spec().output, i) + sums[i];
    }
    for (i64 i = 0; i < piece; ++i) visit(static_cast<i32>(at - first + i), sums + i * kUnit);
    at += piece;
  }
}

template <int kUnit, class S>
struct RoundedUnit {
  alignas(16) u8 bytes[kUnit * sizeof(float)];
  int size_bytes;

  RoundedUnit(S spec, const float* sums) : size_bytes(kUnit * bytes_of(spec().output)) {
    with_element(spec().output, [&](auto element) { host_convert_tile<element()>(bytes, sums, kUnit); });
  }
  void store(u8* address) const { std::memcpy(address, bytes, static_cast<std::size_t>(size_bytes)); }
};

#endif

/// Calls body(constant unit size): one instance is compiled on a GPU, two on the host.
template <int kUnit>
struct UnitElements {
  MOELINK_DEVICE constexpr int operator()() const { return kUnit; }
};
template <class S, class Body>
MOELINK_DEVICE void with_tp_unit(S spec, Body&& body) {
#if MOELINK_ON_DEVICE
  (void)spec;
  body(UnitElements<tp_unit_elements(S{}().hidden)>{});
#else
  tp_unit_elements(spec().hidden) == 8 ? body(UnitElements<8>{}) : body(UnitElements<4>{});
#endif
}

/// Stores the complete sum of a unit, if its token is there.
template <int kUnit, class S>
MOELINK_DEVICE void store_tp_output(S spec, const TensorParallelArgs& args, const TpUnits& units, i64 unit,
                                    const RoundedUnit<kUnit, S>& rounded) {
  if (unit >= units.live) return;
  const i64 per_row = spec().hidden / kUnit;
  const i64 token = unit / per_row;
  rounded.store(tp_output_row(args, token) + (unit - token * per_row) * kUnit * bytes_of(spec().output));
}

}  // namespace moelink
