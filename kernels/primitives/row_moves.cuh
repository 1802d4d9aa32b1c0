// One row of a batch to its places, where it does not pass through a ring: on a GPU through the registers of the whole
// block, which multiply it by its weights; on the host by one thread, which also quantises.
#pragma once

#include "moelink/device/primitives/quantized_part.cuh"
#include "moelink/device/primitives/row_batch.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#if !MOELINK_ON_DEVICE
#include "moelink/device/primitives/host_rows.hpp"
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

/// By the block.
template <class Exec, class S>
MOELINK_DEVICE void move_through_registers(const Exec& ex, S spec, const RowTargets& to, const RowBatch& from,
                                           i32 row) {
  using Part = RowPart<Exec, S>;
  const RowJob& job = from.jobs[row];
  Part part(spec);
  for (i64 at = 0; at < spec().row_bytes; at += Part::kMaxBytes) {
    const i64 left = spec().row_bytes - at;
    part.load_received(ex, job.row + at, static_cast<i32>(min_of(left, static_cast<i64>(Part::kMaxBytes))));
    if (job.copy != nullptr) part.send(ex, job.copy + at);
    for (int k = 0; k < spec().top_k; ++k) {
      const i64 place = from.places[row * spec().top_k + k];
      if (place < 0) continue;
      part.store(ex, to.rows + place * to.row_stride_bytes + at, from.weights[row * spec().top_k + k], to.streaming);
    }
  }
}

#else

/// To the first of its places; the others get copies.
template <class Exec, class S>
void quantize_on_host(const Exec& ex, S spec, const RowTargets& to, const RowBatch& from, i32 row) {
  const RowJob& job = from.jobs[row];
  QuantizedPart<Exec, S> part(spec);
  part.load(ex, job.row, static_cast<i32>(raw_row_bytes(spec)), to.tensor_scale);
  if (job.copy != nullptr) part.send(ex, spec, job.copy, job.copy + spec().row_bytes, 0);
  part.store_all(ex, spec,
                 {.rows = to.rows,
                  .row_stride_bytes = to.row_stride_bytes,
                  .scales = to.row_scales,
                  .first_element = 0,
                  .places = from.places + row * spec().top_k});
}

template <class Exec, class S>
void move_on_host(const Exec& ex, S spec, const RowTargets& to, const RowBatch& from, i32 row) {
  const RowJob& job = from.jobs[row];
  if (is_raw(spec, job)) return quantize_on_host(ex, spec, to, from, row);
  if (job.copy != nullptr) host_copy_row(job.copy, job.row, spec().row_bytes, Element::none, 1.0F, to.streaming);
  for (int k = 0; k < spec().top_k; ++k) {
    const i64 place = from.places[row * spec().top_k + k];
    if (place < 0) continue;
    host_copy_row(to.rows + place * to.row_stride_bytes, job.row, spec().row_bytes, spec().weighted,
                  from.weights[row * spec().top_k + k], to.streaming);
  }
}

#endif

}  // namespace moelink
