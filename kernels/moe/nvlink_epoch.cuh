// Which call a launch of the nvlink mode belongs to, and whether it comes in order (docs/nvlink.md, "Epochs").
//
// Memory: NvlinkTables::epochs, one word per phase, each on a line of its own. All blocks of a launch read the word of
// the phase before theirs, which no block of the launch writes; one block, the keeper, reads and writes the words of
// the launch's own phases. So neither ticket nor barrier is needed, and a graph can be replayed.
//
// NOTE [late faults]. Blocks of a launch do not wait for each other at its end: one may meet a fault when the keeper
// has long published counts and completed the phase, in which its own share had come. What runs next would then send
// sums over rows that never came, with flags that say that they are good. So any block that meets a fault leaves a mark
// beside the phase's word (break_off()); whatever launch finds the mark of the phase before its own marks its own, too,
// sends nothing and waits for nobody. Marks are private memory that no launch both reads and writes: all threads of all
// its blocks see the same. Other ranks meet the fault while they wait for what this one does not send. Counts that were
// published stay: what experts make of rows that are not there goes nowhere. (A call out of order leaves no mark: it is
// reported by its first thread, and its words then never fit again.)
#pragma once

#include "moelink/device/primitives/warp.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/fault.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

MOELINK_DEVICE constexpr FaultPhase fault_phase_of(NvlinkPhase phase) {
  return phase == NvlinkPhase::dispatch_send      ? FaultPhase::dispatch_send
         : phase == NvlinkPhase::dispatch_receive ? FaultPhase::dispatch_receive
         : phase == NvlinkPhase::combine_send     ? FaultPhase::combine_send
                                                  : FaultPhase::combine_receive;
}

class NvlinkEpoch {
 public:
  /// By all threads, on entry: the loads are under way while other work is done (by instructions that the compiler
  /// does not know to give all threads the same: what it knows that of it moves into a uniform register, at once, and
  /// waits). The launch runs the phases first .. last, at most two.
  MOELINK_DEVICE NvlinkEpoch(const NvlinkTables& tables, NvlinkPhase first, NvlinkPhase last, bool is_keeper)
      : tables_(tables), first_(first), last_(last) {
    static_assert(NvlinkTables::kBrokenWord == 1, "a phase's word and its mark are a pair");
    const NvlinkPhase before =
        starts_epoch() ? NvlinkPhase::combine_receive : static_cast<NvlinkPhase>(static_cast<i32>(first) - 1);
    before_ = ld_relaxed_gpu_pair(reinterpret_cast<const WordPair*>(word(before)));
    if (!is_keeper) return;
    completed_[0] = ld_relaxed_gpu(word(first));
    completed_[1] = ld_relaxed_gpu(word(last));
  }

  /// By all threads, before they ask: waits for what the constructor asked for.
  MOELINK_DEVICE void arrive() {
    value_ = warp_uniform(before_.second != 0 ? kBroken : before_.first + (starts_epoch() ? 1 : 0));
  }

  /// The number of this call: 1, 2, ...
  [[nodiscard]] MOELINK_DEVICE u64 value() const { return value_; }
  /// The phase before met a fault: leave, by break_off().
  [[nodiscard]] MOELINK_DEVICE bool is_broken() const { return value_ == kBroken; }

  /// By one thread of each block that has met a fault, or leaves because of one: NOTE [late faults].
  MOELINK_DEVICE void break_off() const { st_relaxed_gpu(word(last_) + NvlinkTables::kBrokenWord, u64{1}); }

  /// By one thread of the keeper, before the launch waits for anything: a call out of order is a fault.
  MOELINK_DEVICE void check_order(const FaultContext& context) const {
    check_order(context, first_, completed_[0]);
    check_order(context, last_, completed_[1]);
  }

  /// By one thread of the keeper, at its end; not after a fault. The next launch in stream order sees it.
  MOELINK_DEVICE void complete() const {
    for (i32 phase = static_cast<i32>(first_); phase <= static_cast<i32>(last_); ++phase) {
      *word(static_cast<NvlinkPhase>(phase)) = value();
    }
  }

 private:
  static constexpr u64 kBroken = ~u64{0};

  [[nodiscard]] MOELINK_DEVICE bool starts_epoch() const { return first_ == NvlinkPhase::dispatch_send; }
  MOELINK_DEVICE void check_order(const FaultContext& context, NvlinkPhase phase, u64 completed) const {
    if (completed + 1 == value()) return;
    const WaitFor what{.phase = fault_phase_of(phase), .epoch = value(), .expected = value() - 1};
    report_fault(context, FaultKind::out_of_order, what, completed, 0);
  }
  MOELINK_DEVICE u64* word(NvlinkPhase phase) const {
    return tables_.epochs + static_cast<i32>(phase) * NvlinkTables::kEpochStride;
  }

  const NvlinkTables& tables_;
  NvlinkPhase first_;
  NvlinkPhase last_;
  u64 value_ = 0;
  WordPair before_;        ///< of the phase before the launch's: its word and its mark
  u64 completed_[2] = {};  ///< keeper: how often the launch's own phases were. Behind rows these loads would queue
};

}  // namespace moelink
