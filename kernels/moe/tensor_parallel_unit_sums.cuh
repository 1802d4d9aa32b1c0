// What the algorithms that sum over the ranks from memory share: how units are loaded from all ranks, stored to all,
// and taken from there. Places are counted in units from an offset of the symmetric buffer.
#pragma once

#include "moelink/device/all_reduce/access.cuh"
#include "moelink/device/all_reduce/chunk.cuh"
#include "moelink/device/primitives/tensor_parallel_partial.cuh"

namespace moelink {

/// Units a thread sums at once: as many as registers allow, of every rank. The host has no latency to hide.
template <class Unit, class S>
inline constexpr int kTpUnitsAtOnce = 1;
template <class Unit, TensorParallelSpec S>
inline constexpr int kTpUnitsAtOnce<Unit, Static<S>> = max_of(8 / (max_of(S.num_ranks, 2) * Unit::kVectors), 1);

/// A type as a value.
template <class T>
struct TypeOf {
  using Type = T;
};

/// Calls body(a unit's type, TypeOf<how ranks' memory is reached>).
template <class S, class Body>
MOELINK_DEVICE void with_tp_access(S spec, Body&& body) {
  with_tp_unit(spec, [&](auto unit) {
    using Unit = decltype(unit);
#if MOELINK_ON_DEVICE
    if constexpr (S{}().multicast) {
      body(unit, TypeOf<MulticastAccess<Unit::kType, S>>{});
      return;
    }
#endif
    body(unit, TypeOf<UnicastAccess<Unit::kType, S>>{});
  });
}

/// Where the part of `count` places that `rank` sums begins; it ends where the next rank's begins.
MOELINK_DEVICE i64 tp_shard_begin(i64 count, int rank, int num_ranks) { return count * rank / num_ranks; }

/// By the block: body(place, sums) for places [begin, end) from `offset_bytes` on, summed over the ranks and rounded to
/// the type of parts.
template <int kAtOnce, class Unit, class Exec, class Access, class Body>
MOELINK_DEVICE void sum_tp_units(const Exec& ex, const Access& access, i64 offset_bytes, i64 begin, i64 end,
                                 const Body& body) {
  for_each_batch<kAtOnce>(ex, begin, end, [&](auto batch, i64 first, i64 stride) {
    Vec16 sums[batch()][Unit::kVectors];
    if constexpr (Unit::kVectors == 1) {
      access.load_reduce(batch, offset_bytes, first, stride, &sums[0][0]);
    } else {
      MOELINK_UNROLL
      for (int j = 0; j < batch(); ++j) {
        access.load_reduce(BatchSize<Unit::kVectors>{}, offset_bytes, (first + j * stride) * Unit::kVectors, 1,
                           sums[j]);
      }
    }
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) body(first + j * stride, sums[j]);
  });
}

/// To this place of every rank. A place has the size of a part.
template <class Unit, class S, class Access>
MOELINK_DEVICE void store_tp_result(S spec, const Access& access, i64 offset_bytes, i64 place,
                                    const TpResult<Unit, S>& result) {
  MOELINK_UNROLL
  for (int v = 0; v < Unit::kVectors; ++v) {
    if (v < result.num_vectors(spec)) access.store_all(offset_bytes, place * Unit::kVectors + v, result.vectors[v]);
  }
}

/// By the block: body(place, result) with what store_tp_result has left in this rank's memory.
template <class Unit, class Exec, class S, class Body>
MOELINK_DEVICE void for_each_tp_result(const Exec& ex, S spec, const Window& window, i64 offset_bytes, i64 begin,
                                       i64 end, const Body& body) {
  const Vec16* in = window.template at<const Vec16>(window.rank, offset_bytes, spec().num_ranks);
  for_each_batch<4>(ex, begin, end, [&](auto batch, i64 first, i64 stride) {
    TpResult<Unit, S> results[batch()];
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      MOELINK_UNROLL
      for (int v = 0; v < Unit::kVectors; ++v) {
        if (v < results[j].num_vectors(spec)) results[j].vectors[v] = in[(first + j * stride) * Unit::kVectors + v];
      }
    }
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) body(first + j * stride, results[j]);
  });
}

}  // namespace moelink
