// One Exchange with everything that one dispatch and its combine need. A sample uses several, so that no call finds its
// data in a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "moelink/buffer.hpp"
#include "moelink/exchange.hpp"
#include "perf/common/model.hpp"
#include "perf/common/payload.hpp"
#include "perf/common/routing.hpp"
#include "perf/moe/settings.hpp"
#include "perf/reference/mismatch.hpp"
#include "perf/reference/moe_reference.hpp"
#include "perf/reference/row_plan.hpp"

namespace moelink::perf {

/// Bytes of one dispatch and one combine.
struct MoeTraffic {
  std::int64_t dispatch_logical = 0;  ///< rows that experts receive
  std::int64_t dispatch_moved = 0;    ///< tokens read once, rows written
  std::int64_t combine_logical = 0;   ///< expert outputs that are summed
  std::int64_t combine_moved = 0;     ///< expert outputs read, sums written
};

class MoeSet {
 public:
  /// Allocates and fills. `seed` decides routing, weights and tokens.
  MoeSet(const MoeSettings& settings, const Model& model, std::int64_t num_tokens, std::uint64_t seed,
         const Communicator& communicator, StreamView stream, Team& team);

  void dispatch() { batch_ = exchange_.dispatch(dispatch_args_, stream_); }
  void combine() { exchange_.combine(combine_args_, stream_); }

  /// Overwrites what dispatch and combine write with NaNs: a value that is not written, or a pad that is read, shows.
  void poison();
  /// Compares everything that dispatch wrote with the reference. The stream must be idle.
  void check_dispatch(Team& team, Mismatches& mismatches);
  /// Replaces dispatched rows by what their experts make of them.
  void run_experts(Team& team);
  /// Compares every value of the output, and the data errors counted since `poison`, with the reference.
  void check_combine(Team& team, Mismatches& mismatches);

  [[nodiscard]] MoeTraffic traffic() const;
  [[nodiscard]] const MoeCase& moe() const noexcept { return case_; }
  [[nodiscard]] std::string plan_text() const { return exchange_.describe_plan(routing_.num_tokens); }
  [[nodiscard]] MutableMatrixView tokens() const noexcept { return writable(dispatch_args_.tokens); }
  [[nodiscard]] MutableMatrixView rows() const noexcept { return dispatch_args_.rows; }
  [[nodiscard]] MutableMatrixView expert_output() const noexcept { return writable(combine_args_.expert_output); }
  [[nodiscard]] MutableMatrixView output() const noexcept { return combine_args_.output; }

  MoeSet(const MoeSet&) = delete;
  MoeSet& operator=(const MoeSet&) = delete;

  /// Device bytes that a set of this shape takes, roughly: to choose how many sets there can be.
  [[nodiscard]] static std::int64_t estimate_bytes(const MoeSettings& settings, const Model& model,
                                                   std::int64_t num_tokens);

 private:
  /// Views to read of buffers that this owns.
  static MutableMatrixView writable(const MatrixView& view) noexcept {
    return {const_cast<void*>(view.data), view.type, view.rows, view.columns, view.row_stride_bytes};
  }
  void upload_routing();
  void check_metadata(Mismatches& mismatches) const;

  StreamView stream_;
  Routing routing_;
  RowPlan plan_;
  MoeCase case_;
  Exchange exchange_;
  Buffer tokens_, scales_, ids_, weights_;  // inputs
  Buffer rows_, expert_output_, output_;    // expert_output_ only where rows cannot hold it
  DispatchArgs dispatch_args_;
  CombineArgs combine_args_;
  ExpertBatch batch_;
  DataErrors errors_before_;
  IndexType index_;
};

}  // namespace moelink::perf
