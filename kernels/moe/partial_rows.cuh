// Partial sums of tokens at several ranks: where they lie, and in what units threads take them.
#pragma once

#include "moelink/device/moe/remotes.cuh"
#include "moelink/device/primitives/row_reduce.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// One token's sum. Addresses are multiples of 16 bytes.
struct PartialSum {
  RowSum own;          ///< this rank's rows; its output is the token's whole row, its token and num_tokens are not used
  const u8* partials;  ///< that of peer number d is at partials + (d * slots + its slot) * pitch
  i64 pitch_bytes;
  const RemoteArgs* remote;  ///< where those of remotes are
  const i32* slot_of_rank;   ///< [num_ranks]: outside [0, slots): that rank has nothing
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

/// Block scratch that keeps what a block has summed of one row of its own, as much as fits. (On the host: a pointer for
/// each rank.)
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

#endif

}  // namespace moelink
