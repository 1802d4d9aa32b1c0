// How to load a sum over ranks and how to store to all ranks: the only two things that NVLS does differently. The
// algorithms are templates over this choice, so that all but the instruction is tested on any machine.
//
// Both take an offset in the symmetric buffer and vector indexes from there. fence_aliases() comes, in every thread,
// after each wait: what ranks stored to under one address of this memory is then in order with what this thread does
// under another.
#pragma once

#include "moelink/device/all_reduce/sum.cuh"
#include "moelink/device/ptx/fence.cuh"
#include "moelink/device/ptx/multimem.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// Loops over the ranks. Sums in rank order.
template <Element E, class S>
class UnicastAccess {
 public:
  MOELINK_DEVICE UnicastAccess(S spec, const Window& window) : spec_(spec), window_(window) {}

  MOELINK_DEVICE void fence_aliases() const {}  // one address per rank's memory, as far as a device can tell

  /// sums[j] = sum over ranks of vector (first + j * stride).
  template <class Batch>
  MOELINK_DEVICE void load_reduce(Batch batch, i64 offset_bytes, i64 first, i64 stride, Vec16* sums) const {
    VectorSum<E> accumulators[batch()];
    MOELINK_UNROLL
    for (int peer = 0; peer < spec_().num_ranks; ++peer) {
      const Vec16* source = window_.template at<const Vec16>(peer, offset_bytes, spec_().num_ranks);
      Vec16 values[batch()];
      MOELINK_UNROLL
      for (int j = 0; j < batch(); ++j) {
        values[j] = source[first + j * stride];
      }
      MOELINK_UNROLL
      for (int j = 0; j < batch(); ++j) {
        peer == 0 ? accumulators[j].start(values[j]) : accumulators[j].add(values[j]);
      }
    }
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      sums[j] = accumulators[j].rounded();
    }
  }

  MOELINK_DEVICE void store_all(i64 offset_bytes, i64 vector, const Vec16& value) const {
    MOELINK_UNROLL
    for (int step = 1; step <= spec_().num_ranks; ++step) {
      // Start with the next rank, so that not all ranks store to rank 0 at once.
      const int peer = (window_.rank + step) % spec_().num_ranks;
      window_.template at<Vec16>(peer, offset_bytes, spec_().num_ranks)[vector] = value;
    }
  }

 private:
  S spec_;
  const Window& window_;
};

#if MOELINK_ON_DEVICE
/// One instruction each, through the multicast mapping: the switch loads from all and sums in fp32, in an order of its
/// own; or stores to all.
template <Element E, class S>
class MulticastAccess {
 public:
  MOELINK_DEVICE MulticastAccess(S, const Window& window) : base_(window.multicast) {}

  /// Staging is written under its plain address and summed under the multicast one, results the other way round; flags
  /// alone do not order accesses under different addresses (PTX: virtual aliases behave as different proxies).
  MOELINK_DEVICE void fence_aliases() const { fence_proxy_alias(); }

  template <class Batch>
  MOELINK_DEVICE void load_reduce(Batch batch, i64 offset_bytes, i64 first, i64 stride, Vec16* sums) const {
    MOELINK_UNROLL
    for (int j = 0; j < batch(); ++j) {
      sums[j] = multimem_ld_reduce_add_relaxed_sys<E>(at(offset_bytes, first + j * stride));
    }
  }

  MOELINK_DEVICE void store_all(i64 offset_bytes, i64 vector, const Vec16& value) const {
    multimem_st_relaxed_sys(at(offset_bytes, vector), value);
  }

 private:
  MOELINK_DEVICE Vec16* at(i64 offset_bytes, i64 vector) const {
    return reinterpret_cast<Vec16*>(base_ + offset_bytes) + vector;
  }
  u8* base_;
};
#endif

}  // namespace moelink
