// How the staged algorithms cut a message: in each of num_steps steps every block takes one chunk of chunk_vectors,
// blocks ascending; one with nothing left still signals.
#pragma once

#include "moelink/device/all_reduce/message.cuh"
#include "moelink/device/exec/spec.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// Vectors [first_vector, first_vector + num_vectors) of the message; empty past its end.
struct Chunk {
  i64 first_vector;
  i64 num_vectors;
};

template <class Exec>
MOELINK_DEVICE Chunk chunk_of(const Exec& ex, const AllReduceKernelArgs& args, i64 message_vectors, i64 step) {
  const i64 first = (step * ex.num_blocks() + ex.block()) * args.chunk_vectors;
  return {first, max_of<i64>(0, min_of(args.chunk_vectors, message_vectors - first))};
}

/// Where the part of a chunk that `rank` reduces in the two-shot algorithm begins; it ends where the next rank's
/// begins.
MOELINK_DEVICE i64 shard_begin(const Chunk& chunk, int rank, int num_ranks) {
  return chunk.num_vectors * rank / num_ranks;
}

/// Vectors a thread handles at once when it loads one of each from every rank: as many as registers allow. The host has
/// no latency to hide.
template <class S>
inline constexpr int kRankBatch = 1;
template <AllReduceSpec S>
inline constexpr int kRankBatch<Static<S>> = S.num_ranks <= 2   ? 4
                                             : S.num_ranks <= 4 ? 2
                                                                : 1;

template <int N>
struct BatchSize {
  MOELINK_DEVICE constexpr int operator()() const { return N; }
};

/// What is left for a thread after its batches of 2 * kBatch: fewer than so many.
template <int kBatch, class Body>
MOELINK_DEVICE void for_rest(i64 at, i64 end, i64 stride, Body& body) {
  if constexpr (kBatch > 0) {
    if (at + (kBatch - 1) * stride < end) {
      body(BatchSize<kBatch>{}, at, stride);
      at += kBatch * stride;
    }
    for_rest<kBatch / 2>(at, end, stride, body);
  }
}

/// Calls body(batch, first, stride) so that this block's threads together visit [begin, end) once: a call is for
/// vectors first, first + stride, ... (batch() of them: kBatch, a power of two, or at the end fewer). A batch lets a
/// thread have all its loads in flight before its first store, which the compiler cannot arrange by itself: the store
/// might alias the next load.
template <int kBatch, class Exec, class Body>
MOELINK_DEVICE void for_each_batch(const Exec& ex, i64 begin, i64 end, Body&& body) {
  const i64 stride = ex.num_threads();
  i64 at = begin + ex.thread();
  for (; at + (kBatch - 1) * stride < end; at += kBatch * stride) {
    body(BatchSize<kBatch>{}, at, stride);
  }
  for_rest<kBatch / 2>(at, end, stride, body);
}

/// Copies a chunk of the message into staging memory.
template <class Exec>
MOELINK_DEVICE void stage_chunk(const Exec& ex, const Message<const u8>& input, const Chunk& chunk, Vec16* staging) {
  for_each_batch<4>(ex, 0, chunk.num_vectors, [&](auto batch, i64 first, i64 stride) {
    Vec16 values[batch()];
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      values[j] = input.load(chunk.first_vector + first + j * stride);
    }
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      staging[first + j * stride] = values[j];
    }
  });
}

/// Copies a chunk of the message from staging memory to the output.
template <class Exec>
MOELINK_DEVICE void unstage_chunk(const Exec& ex, const Vec16* results, const Chunk& chunk, const Message<u8>& output) {
  for_each_batch<4>(ex, 0, chunk.num_vectors, [&](auto batch, i64 first, i64 stride) {
    Vec16 values[batch()];
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      values[j] = results[first + j * stride];
    }
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      output.store(chunk.first_vector + first + j * stride, values[j]);
    }
  });
}

}  // namespace moelink
