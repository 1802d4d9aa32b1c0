// Ranks of the nvlink mode in one process: memory of their own and of each other, kernels run by the kernels' own code
// on host threads, results compared with the reference (tests/reference/ranks_moe.hpp).
//
//   NvlinkRanks ranks(config, threads_per_rank);
//   ranks.each([&](NvlinkRank& rank) {          // on a thread of its own; nothing keeps the ranks in step but the
//   kernels
//     for (int i = 0; i < 1000; ++i) {
//       rank.begin(random_call(config, i, kinds));   // the same call on every rank, by its seed
//       rank.launch<NvlinkDecode>(spec, rank.args, grid, scratch_bytes, pauses);
//       rank.expect_dispatch();
//     }
//   });
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/guarded.hpp"
#include "kernels/pausing_exec.hpp"
#include "moelink/device/exec/spec.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/grid_barrier.cuh"
#include "moelink/protocol/nvlink_moe.hpp"
#include "reference/ranks_moe.hpp"
#include "runtime/block_team.hpp"
#include "transports/rendezvous.hpp"

namespace moelink::test {

/// Fixed for the life of the ranks.
struct NvlinkConfig {
  int num_ranks = 2;
  int tp_size = 1;
  std::int64_t num_experts = 8;  ///< physical
  int top_k = 2;
  std::int64_t max_tokens = 8;
  std::int64_t row_bytes = 32;
  int scale_bytes = 0;
  std::int64_t partial_bytes = 64;  ///< room for a partial row and for an output row
  Element on_input = Element::none;
  std::uint64_t timeout_ns = 60'000'000'000;  ///< of waits
  std::vector<int> nodes = {};                ///< of each rank; empty: one node. Between nodes go loopback puts
  int log2_slots_per_chunk = 0;               ///< of those
  bool relays = false;                        ///< launches have a relay, as on a GPU
  int line_tokens = 3;                        ///< NvlinkShape::line_tokens, of those that there are

  [[nodiscard]] int num_groups() const { return num_ranks / tp_size; }
  [[nodiscard]] NvlinkShape shape() const;
  [[nodiscard]] NvlinkDispatchSpec spec() const;
};

/// One dispatch of all ranks: what is passed, and the tokens of every source.
struct NvlinkCall {
  reference::RanksInput in = {};
  std::vector<std::vector<unsigned char>> tokens = {};  ///< of each source, dense
  std::vector<std::vector<unsigned char>> scales = {};
  int id_bytes = 4;
  bool zero_pads = false;
  bool device_count = false;       ///< the token count is in device memory; the call's own is max_tokens
  std::int64_t row_gap_bytes = 0;  ///< between rows and between tokens
};

/// How entries choose their experts.
enum class Routes { uniform, one_expert, one_rank, few, unused, with_bad_ids };

struct CallOptions {
  Routes routes = Routes::uniform;
  std::vector<std::int64_t> tokens_of_source = {};  ///< empty: random, 0 to max_tokens
  Layout layout = Layout::packed;
  int alignment = 1;
  std::int64_t capacity = -1;  ///< -1: as many rows as can be needed
  bool weighted = true;
  int id_bytes = 4;
  bool zero_pads = false;
  bool device_count = false;
  std::int64_t row_gap_bytes = 0;
  int max_replicas = 0;  ///< not 0: a random map of half as many logical experts
};

/// A call by its seed: equal wherever it is made.
NvlinkCall make_call(const NvlinkConfig& config, const CallOptions& options, unsigned seed);
/// Options at random: every kind of routing, layouts, alignments, capacities too small now and then.
CallOptions random_options(const NvlinkConfig& config, unsigned seed);

/// As the reference calls an element's type; bf16 of those it has not.
[[nodiscard]] DataType type_of(Element element);

class NvlinkRank {
 public:
  NvlinkRank(const NvlinkConfig& config, int rank, int num_threads);
  ~NvlinkRank();

  /// Takes over a call's inputs; `args` is then ready but for sends, receives, format and num_senders.
  void begin(const NvlinkCall& call);
  /// Other tokens for the routing of the last call.
  void begin_reuse(const NvlinkCall& call);

  /// Runs a kernel's blocks on this rank's threads; a relay is one more than `grid`.
  template <class Kernel>
  void launch(const typename Kernel::Spec& spec, const typename Kernel::Args& kernel_args, int grid,
              std::size_t scratch_bytes, const Pauses& pauses = {}) {
    const Runtime<typename Kernel::Spec> view(spec);
    ++launches_;
    team_.run(grid + (config.relays ? 1 : 0), scratch_bytes, [&](const HostExec& ex) {
      Kernel::run(PausingExec(ex, pauses, launches_ * 64 + static_cast<unsigned>(index)), view, kernel_args);
    });
  }

  /// What a completed dispatch must have written: rows, what is known about them, and the private tables.
  void expect_dispatch();

  /// This rank's fault word now; peers may be writing it.
  [[nodiscard]] std::uint64_t fault() const { return ld_relaxed_sys(&fault_word); }

  const NvlinkConfig config;
  const int index;
  NvlinkDispatchArgs args{};
  NvlinkCall call;
  reference::RankRouting expected;
  ExchangeStatus status{};
  FaultRecord fault_record{};
  alignas(64) std::uint64_t fault_word = 0;

 private:
  friend class NvlinkRanks;
  struct Remote;
  void connect(Rendezvous& meet);
  void expect_rows();
  void expect_tables();
  void expect_status();
  void set_tokens();

  BlockTeam team_;
  unsigned launches_ = 0;
  Guarded symmetric_, tokens_, scales_, ids_, weights_, rows_, row_scales_, offsets_, counts_, expert_of_row_,
      weight_of_row_, source_of_row_;
  Guarded epochs_, slot_of_token_, token_of_slot_, num_sent_, num_received_, source_tokens_, received_token_,
      row_of_entry_, weight_of_entry_, dropped_, tickets_, block_counts_;
  GridBarrierWord grid_barrier_{};
  std::vector<std::int32_t> map_;
  std::int32_t device_count_ = 0;
  std::int32_t snapshot_ = 0;
  std::vector<std::uint64_t*> peer_words_;
  std::vector<unsigned char*> bases_;
  std::unique_ptr<Remote> remote_;
  ExchangeStatus status_before_{};
  bool reused_ = false;
};

class NvlinkRanks {
 public:
  explicit NvlinkRanks(const NvlinkConfig& config, int threads_per_rank);
  ~NvlinkRanks();
  /// Runs `body` for every rank, each on a thread of its own, all at once.
  void each(const std::function<void(NvlinkRank&)>& body);
  NvlinkRank& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

 private:
  std::vector<std::unique_ptr<NvlinkRank>> ranks_;
};

}  // namespace moelink::test
