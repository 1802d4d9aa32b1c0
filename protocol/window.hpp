// How one rank sees the symmetric memory of its group: the view that kernels take by value. Its owner is
// SymmetricBuffer (transports/symmetric_buffer.hpp), which must outlive every kernel that uses the view.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Most ranks whose addresses travel inside the Window, in the kernel's parameters: one constant-cache access and no
/// load from memory. A node is rarely larger; beyond (NVL72) the addresses stand in a table in the rank's own memory,
/// one cached load more. 16 pointers are 128 of the 4096 bytes that a kernel's parameters may have.
inline constexpr int kMaxInlineRanks = 16;

/// The same `size_bytes` at every rank; offsets are equal everywhere, addresses are not. Ranks are the communicator's.
/// A rank on another node has the address null.
struct Window {
  i32 rank = 0;
  i32 num_ranks = 0;
  i64 size_bytes = 0;
  u8* multicast = nullptr;                 ///< stores here reach all ranks (NVLS); null where there is none
  u8* const* table = nullptr;              ///< [num_ranks], own memory; used if num_ranks > kMaxInlineRanks
  u8* inline_bases[kMaxInlineRanks] = {};  ///< used otherwise

  /// Where `peer`'s memory starts in this rank's addresses. Kernels pass the number of ranks from their spec, so that
  /// the choice between the two places is made at compile time.
  MOELINK_DEVICE constexpr u8* base(int peer, int ranks) const {
    return ranks <= kMaxInlineRanks ? inline_bases[peer] : table[peer];
  }
  MOELINK_DEVICE constexpr u8* base(int peer) const { return base(peer, num_ranks); }

  /// The `T` at `offset_bytes` of `peer`'s memory.
  template <class T>
  MOELINK_DEVICE T* at(int peer, i64 offset_bytes, int ranks) const {
    return reinterpret_cast<T*>(base(peer, ranks) + offset_bytes);
  }
  template <class T>
  MOELINK_DEVICE T* at(int peer, i64 offset_bytes) const {
    return at<T>(peer, offset_bytes, num_ranks);
  }
};

}  // namespace moelink
