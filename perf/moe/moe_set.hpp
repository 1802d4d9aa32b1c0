// One rank's Exchange with everything that one dispatch and its combine need. A sample uses several, so that no call
// finds its data in a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "moelink/buffer.hpp"
#include "moelink/exchange.hpp"
#include "perf/common/model.hpp"
#include "perf/common/payload.hpp"
#include "perf/common/routing.hpp"
#include "perf/moe/settings.hpp"
#include "perf/moe/traffic.hpp"
#include "perf/reference/mismatch.hpp"
#include "perf/reference/moe_reference.hpp"
#include "perf/reference/row_plan.hpp"

namespace moelink::perf {

class MoeSet {
 public:
  /// Allocates and fills. `seed` decides routing, weights and tokens of all ranks. Collective.
  MoeSet(const MoeSettings& settings, const Model& model, const std::vector<std::int64_t>& tokens_of_source,
         std::uint64_t seed, const Communicator& communicator, StreamView stream, Team& team);

  void dispatch() { batch_ = exchange_.dispatch(dispatch_args_, stream_); }
  void combine() { exchange_.combine(combine_args_, stream_); }
  void dispatch_send() { dispatched_.emplace(exchange_.dispatch_send(dispatch_args_, stream_)); }
  void dispatch_receive() { batch_ = exchange_.dispatch_receive(std::move(dispatched_.value()), stream_); }
  void combine_send() { combined_.emplace(exchange_.combine_send(combine_args_, stream_)); }
  void combine_receive() { exchange_.combine_receive(std::move(combined_.value()), stream_); }

  /// Overwrites what dispatch and combine write with NaNs: a value that is not written, or a pad that is read, shows.
  void poison();
  /// Compares dispatched rows with the reference. The stream must be idle.
  void check_rows(Team& team, Mismatches& mismatches);
  /// Compares everything that dispatch wrote with the reference. The stream must be idle.
  void check_dispatch(Team& team, Mismatches& mismatches);
  /// Replaces dispatched rows by what their experts make of them.
  void run_experts(Team& team);
  /// Compares every value of the output, and the data errors counted since `poison`, with the reference. Throws a
  /// fault. Of a quantised payload `error` gets what the output is off from the one without quantising.
  void check_combine(Team& team, Mismatches& mismatches, RelativeError& error);

  [[nodiscard]] const MoeTraffic& traffic() const noexcept { return traffic_; }
  [[nodiscard]] const MoeCase& moe() const noexcept { return case_; }
  [[nodiscard]] const ExchangeConfig& config() const { return exchange_.config(); }
  [[nodiscard]] const DispatchArgs& dispatch_args() const noexcept { return dispatch_args_; }
  [[nodiscard]] const CombineArgs& combine_args() const noexcept { return combine_args_; }
  [[nodiscard]] std::string plan_text() const { return exchange_.describe_plan(case_.routing().num_tokens); }
  [[nodiscard]] MutableMatrixView tokens() const noexcept { return writable(dispatch_args_.tokens); }
  [[nodiscard]] MutableMatrixView rows() const noexcept { return dispatch_args_.rows; }
  [[nodiscard]] MutableMatrixView expert_output() const noexcept { return writable(combine_args_.expert_output); }
  [[nodiscard]] MutableMatrixView output() const noexcept { return combine_args_.output; }

  MoeSet(const MoeSet&) = delete;
  MoeSet& operator=(const MoeSet&) = delete;

  /// Bytes that a call of this rank reads and writes, roughly: to choose how many sets there should be.
  [[nodiscard]] static std::int64_t call_bytes(const MoeSettings& settings, const Model& model,
                                               const std::vector<std::int64_t>& tokens_of_source);
  /// Bytes that a set of this rank takes, its Exchange included, if experts are equally busy. Throws what the library
  /// refuses.
  [[nodiscard]] static std::int64_t set_bytes(const MoeSettings& settings, const Model& model,
                                              const std::vector<std::int64_t>& tokens_of_source,
                                              const Communicator& communicator);

 private:
  /// Views to read of buffers that this owns.
  static MutableMatrixView writable(const MatrixView& view) noexcept {
    return {const_cast<void*>(view.data), view.type, view.rows, view.columns, view.row_stride_bytes};
  }
  void upload_tokens(const MoeSettings& settings, Team& team);
  void upload_routing();
  void check_metadata(Mismatches& mismatches) const;
  void check_data_errors(Mismatches& mismatches);
  [[nodiscard]] std::int64_t source_word(std::int64_t entry) const;

  StreamView stream_;
  Placement placement_;
  Sources sources_;
  std::int64_t capacity_;  // rows of this rank (packed) or of each expert (batched): equal on all ranks
  RowPlan plan_;
  MoeCase case_;
  MoeTraffic traffic_;
  Exchange exchange_;
  Buffer tokens_, scales_, ids_, weights_, expert_map_, tensor_scale_;  // inputs
  Buffer rows_, expert_output_, output_;                                // expert_output_ only where rows cannot hold it
  DispatchArgs dispatch_args_;
  CombineArgs combine_args_;
  ExpertBatch batch_;
  std::optional<DispatchTicket> dispatched_;
  std::optional<CombineTicket> combined_;
  DataErrors errors_before_;
  IndexType index_;
};

}  // namespace moelink::perf
