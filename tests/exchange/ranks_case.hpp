// Dispatches and combines of several ranks: what goes in and has to come out by the reference, and one rank's side of
// them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "exchange/runner.hpp"
#include "moelink/exchange.hpp"
#include "reference/ranks_moe.hpp"

namespace moelink::test {

/// How entries choose experts.
enum class Routes { uniform, one_expert, one_rank, duplicates, holes, garbage };
inline constexpr Routes kAllRoutes[] = {Routes::uniform,    Routes::one_expert, Routes::one_rank,
                                        Routes::duplicates, Routes::holes,      Routes::garbage};

/// Everything that shapes the calls of one group of ranks.
struct RanksShape {
  int num_ranks = 2;
  int tp_size = 1;
  std::int64_t num_experts = 8;
  int top_k = 2;
  std::int64_t hidden = 32;
  std::int64_t max_tokens = 8;
  Payload payload = {};
  CombineTypes combine = {};
  bool fp32_partials = false;
  IndexType index = IndexType::int32;
  Layout layout = Layout::packed;
  int alignment = 1;
  std::int64_t capacity = -1;  ///< packed: rows in all; batched: rows per expert; -1: enough for every entry
  WeightMode weight_mode = WeightMode::on_combine;
  bool accumulate = false;
  bool zero_pads = false;
  bool device_counts = false;             ///< token counts are in device memory; calls pass max_tokens rows
  std::int64_t num_physical_experts = 0;  ///< not 0: a map of replicas
  int max_replicas = 1;
  int ranks_per_node = 0;      ///< not 0: mode p2p, between nodes of so many ranks
  std::string transport = {};  ///< ExchangeConfig::transport

  [[nodiscard]] int num_sources() const { return num_ranks / tp_size; }
  [[nodiscard]] ExchangeConfig config() const;
};

/// One dispatch and combine of all ranks, by its seed: equal wherever it is made.
struct RanksCall {
  /// `tokens` of each source; empty: random, 0 to max_tokens.
  RanksCall(const RanksShape& shape, Routes routes, unsigned seed, std::vector<std::int64_t> tokens = {});

  RanksShape shape;
  reference::RanksInput in;
  std::vector<Bytes> tokens;         ///< of each source
  std::vector<Bytes> scales;         ///< of each source
  std::vector<Bytes> prior_output;   ///< of each source
  std::vector<Bytes> expert_output;  ///< of each rank; pads are NaN
  std::vector<reference::RankRouting> routing;
  std::vector<Bytes> rows;        ///< of each rank
  std::vector<Bytes> row_scales;  ///< of each rank
  std::vector<Bytes> output;      ///< of each source

  [[nodiscard]] std::int64_t dropped_by_peers(int rank) const;
};

/// One rank's Exchange, stream and memory; nothing is allocated after construction.
class ExchangeRank {
 public:
  ExchangeRank(const Communicator& communicator, const RanksShape& shape, int host_threads = 1);
  ExchangeRank(const Communicator& communicator, const RanksShape& shape, Exchange exchange, int host_threads);

  /// Uploads a call's inputs and the expert output that will answer it; waits.
  void load(const RanksCall& call);
  /// Enqueues dispatch and combine; `split`: in halves.
  void enqueue(bool split = false, bool reuse_routing = false);
  /// Waits, and compares everything with the reference.
  void expect(const RanksCall& call, const std::string& where = "");
  /// Waits, and compares the output alone; the number of wrong bytes.
  [[nodiscard]] std::int64_t count_wrong(const RanksCall& call);

  void run(const RanksCall& call, bool split = false, const std::string& where = "") {
    load(call);
    enqueue(split);
    expect(call, where);
  }

  [[nodiscard]] DispatchArgs dispatch_args() const;
  [[nodiscard]] CombineArgs combine_args() const;

  Exchange exchange;
  Stream stream;
  ExpertBatch batch;  ///< of the last dispatch
  int max_sms = 0;    ///< of every call

 private:
  RanksShape shape_;
  int rank_;
  std::int64_t num_tokens_ = 0;
  std::int64_t row_capacity_;
  Buffer tokens_, scales_, ids_, weights_, count_, map_, expert_output_, output_;
};

/// All ranks of one process, on the host or on one GPU, and on one node.
[[nodiscard]] std::vector<Communicator> ranks_on(Device device, int num_ranks,
                                                 std::chrono::milliseconds deadline = std::chrono::seconds(20));

/// The ranks of a shape, on the nodes that it says.
[[nodiscard]] std::vector<Communicator> ranks_on(Device device, const RanksShape& shape,
                                                 std::chrono::milliseconds deadline = std::chrono::seconds(20));

/// Runs calls one after the other on every rank.
void check_calls(Device device, const RanksShape& shape, const std::vector<RanksCall>& calls, int host_threads = 1,
                 bool split = false);

}  // namespace moelink::test
