// Dispatch and combine: tokens to the experts and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "moelink/communicator.hpp"
#include "moelink/export.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"

namespace moelink {

/// How many rows the packed layout can hold: a number (a multiple of max_alignment; 0: packed is not used), or the
/// worst case: every (token, k) entry of every rank lands here, and each expert that has rows is padded.
class Capacity {
 public:
  static const Capacity worst_case;
  // NOLINTNEXTLINE(google-explicit-constructor): `.max_rows = 4096` is how it is meant to be written.
  constexpr Capacity(std::int64_t rows) noexcept : rows_(rows) {}
  [[nodiscard]] constexpr bool is_worst_case() const noexcept { return rows_ == -1; }
  [[nodiscard]] constexpr std::int64_t rows() const noexcept { return rows_; }

 private:
  std::int64_t rows_;
};
inline constexpr Capacity Capacity::worst_case{-1};

/// What one dispatch may carry. Typed rows have `hidden` elements; opaque rows (`bytes`) have `row_bytes` bytes. Either
/// may bring `scale_bytes` bytes per token along (quantisation scales), moved to the same row. With `quantize`, tokens
/// are bf16 or fp16 and dispatch makes rows of that format of them (docs/low-precision.md): ExpertBatch::rows are
/// `bytes`, and ExpertBatch::scales hold each row's scales, row-major. Quantised input is an opaque payload.
struct Payload {
  DataType type = DataType::bfloat16;
  std::int64_t row_bytes = 0;                  ///< opaque rows only: bytes per row, a multiple of 16; 0 for typed rows
  std::int64_t scale_bytes = 0;                ///< bytes per token that travel with the row; 0: none
  Quantization quantize = Quantization::none;  ///< typed rows without scales of their own
  friend constexpr bool operator==(const Payload&, const Payload&) = default;
};

/// What one combine may read and write.
struct CombineTypes {
  DataType expert_output = DataType::bfloat16;
  DataType output = DataType::bfloat16;
  friend constexpr bool operator==(const CombineTypes&, const CombineTypes&) = default;
};

/// Fixed at construction: the shapes, the maxima, and every variant that will be used (each is compiled then; nothing
/// compiles later). With several ranks every field must be equal on all of them; a difference is ErrorCode::mismatch,
/// naming rank, field and values. Rank r owns the (physical) experts [E * r / R, E * (r + 1) / R), rounded down.
struct ExchangeConfig {
  Mode mode = Mode::automatic;     ///< how rows travel
  bool replicated_inputs = false;  ///< every rank passes the same tokens, ids and weights: what automatic goes by
  /// nvlink and p2p: ranks [g * tp_size, (g + 1) * tp_size) are a group whose members pass the same tokens, ids and
  /// weights; they share the sending, and each gets the result. Divides the number of ranks.
  int tp_size = 1;
  /// tensor_parallel: for measurements and tests. Every rank ends with the same bits whichever it is; all but nvls give
  /// the same bits as each other.
  TensorParallelSum tensor_parallel_sum = TensorParallelSum::automatic;
  /// tensor_parallel: false lets a switch that can (NVLS) sum, in an order of its own: the same bits on every rank, but
  /// not promised from run to run.
  bool deterministic = true;
  /// Several ranks: what a rank gives others is its part of a token's sum. It is rounded before, to the type of the
  /// output in mode tensor_parallel and to that of the expert output in nvlink and p2p; or, if this is set, travels in
  /// fp32 (twice the bytes of bf16). What a type cannot hold is infinite in a part, too: in fp16 above 65504.
  bool fp32_partials = false;
  /// Physical experts over all ranks, when an expert may live in several places (DispatchArgs::expert_map); 0: every
  /// expert lives in one place, and ids are what owners are found by.
  std::int64_t num_physical_experts = 0;
  int max_replicas = 1;          ///< most places of one expert, the second dimension of DispatchArgs::expert_map
  std::int64_t num_experts = 0;  ///< 1 .. 16384, over all ranks
  int top_k = 0;                 ///< 1 .. 32
  std::int64_t hidden = 0;      ///< elements per row; hidden * element size must be a multiple of 16 for each type used
  std::int64_t max_tokens = 0;  ///< most tokens one rank passes to one dispatch
  Capacity max_rows = Capacity::worst_case;  ///< packed layout: rows over all local experts, padding included
  std::int64_t max_rows_per_expert = 0;      ///< batched layout: the capacity; 0: batched is not used
  int max_alignment = 1;                     ///< largest `alignment` a dispatch may ask for, a power of two
  std::vector<Payload> payloads = {Payload{}};
  std::vector<CombineTypes> combine_types = {CombineTypes{}};
  bool weights_on_input = false;   ///< WeightMode::on_input will be used (one more kernel per typed payload)
  bool own_rows = true;            ///< the library allocates the rows buffer; if not, each dispatch brings one
  bool own_expert_output = false;  ///< expert_output_buffer() exists
  /// p2p: what carries puts between nodes: "loopback" (ranks of one process), "verbs" or "ucx", equal on all ranks;
  /// empty: MOELINK_PUT, else the first that works on every rank. Another name is invalid_argument, one that does not
  /// work here unsupported. Not used where all ranks can map each other's memory.
  std::string transport = {};
};

/// One dispatch. All pointers are memory of the Exchange's device. Rows move in units of 16 bytes: `tokens` and `rows`
/// start at a multiple of 16 bytes and have strides that are one; scales likewise in units of the largest power of two,
/// at most 16, that divides scale_bytes. Inputs must stay valid and unchanged until the stream has passed dispatch;
/// ids, weights and the token count are copied (a snapshot), combine does not read them again.
struct DispatchArgs {
  MatrixView tokens = {};          ///< [num_tokens, hidden] or, opaque, [num_tokens, row_bytes] of `bytes`
  MatrixView scales = {};          ///< [num_tokens, scale_bytes] of `bytes`, when the payload has scales
  ExpertIdsView expert_ids = {};   ///< [num_tokens, top_k]; -1 skips; outside [-1, num_experts) is dropped and counted
  const float* weights = nullptr;  ///< [num_tokens, top_k]; may be null with WeightMode::none
  const std::int32_t* num_tokens = nullptr;  ///< optional device-side count, at most tokens.rows (clamped, counted)
  Layout layout = Layout::packed;
  int alignment = 1;  ///< packed: each expert's first row is a multiple of this power of two
  WeightMode weight_mode = WeightMode::on_combine;
  MutableMatrixView rows = {};  ///< optional: the caller's rows buffer instead of the library's. It bounds this call's
                                ///< capacity: its rows (packed), its rows / num_local_experts (batched)
  /// [num_experts, max_replicas] in device memory, when the configuration has physical experts: where each expert
  /// lives, -1 behind the last. Token t of group g goes to replica (g + t) mod the number of replicas. May be updated
  /// between calls; a value outside [-1, num_physical_experts) drops the entry and counts it as an id out of range.
  const std::int32_t* expert_map = nullptr;
  bool zero_pads = false;      ///< zero pad rows (else their contents are undefined)
  bool reuse_routing = false;  ///< move these tokens (as many) by the routing of the last dispatch, into the same row
                               ///< positions. Ids, weights, num_tokens, layout, alignment and weight_mode are the last
                               ///< dispatch's; the fields here are ignored
  /// Most SMs (host: threads) this call may occupy; 0: as many as are useful. Calls that overlap on one GPU (several
  /// streams) must share its SMs by this: docs/exchange.md.
  int max_sms = 0;
  Quantization quantize = Quantization::none;  ///< which of the declared payloads of the tokens' type
  const float* tensor_scale = nullptr;  ///< nvfp4: one value in device memory, above 0; null: 1. It does not travel
};

/// The expert side of one dispatch: views of device memory owned by the Exchange (or the caller's rows buffer), valid
/// until the next dispatch on it. Row order inside an expert is (source rank, token, k), always.
struct ExpertBatch {
  MutableMatrixView rows;    ///< packed: [capacity, columns]; batched: [num_local_experts * capacity, columns]
  MutableMatrixView scales;  ///< same rows, scale_bytes columns; data null without scales
  const std::int64_t* offsets = nullptr;  ///< [num_local_experts + 1] first row of each expert. Packed: offsets[e + 1]
                                          ///< = offsets[e] + counts[e] rounded up to the alignment
  const std::int32_t* counts = nullptr;   ///< [num_local_experts] rows of each expert that were kept
  const std::int32_t* expert_of_row = nullptr;  ///< per row, the local expert; -1 on pads. Defined below offsets[last]
                                                ///< (packed) or for every row (batched)
  const float* weight_of_row = nullptr;  ///< per row, the routing weight (1 with WeightMode::none); pads: undefined
  const std::int64_t* source_of_row = nullptr;  ///< per row, (rank * max_tokens + token) * top_k + k; pads: undefined
  std::int64_t num_local_experts = 0;
  std::int64_t capacity = 0;  ///< packed: rows in all; batched: rows per expert
  Layout layout = Layout::packed;
};

/// One combine: output[t] = (accumulate ? output[t] : 0) + sum over k of weight[t,k] * expert_output[row of (t,k)], in
/// fp32, k ascending, product and sum each rounded, then rounded once to the output type. Dropped entries add nothing.
struct CombineArgs {
  /// `hidden` columns, at the row positions of ExpertBatch::rows. It may end early: what lies past it adds nothing.
  MatrixView expert_output = {};
  MutableMatrixView output = {};  ///< [num_tokens, hidden]; with a device-side count, rows past it are left alone
  bool accumulate = false;        ///< add to what `output` holds (a residual, shared experts): first, and once
  /// Optional, local and tensor_parallel: [num_tokens, hidden] of CombineTypes::expert_output, this rank's part of
  /// another sum over the same ranks (a shared expert that is split over them); added behind the rank's own rows.
  MatrixView shared = {};
  int max_sms = 0;  ///< most SMs (host: threads) this call may occupy; 0: as many as are useful
};

/// Data errors seen on the device since construction (or the last clear). All zero means none.
struct DataErrors {
  std::int64_t ids_out_of_range = 0;          ///< entries dropped because the id was outside [-1, num_experts)
  std::int64_t rows_over_capacity = 0;        ///< entries dropped here because their row did not fit
  std::int64_t token_counts_clamped = 0;      ///< calls whose device-side token count was outside [0, tokens.rows]
  std::int64_t entries_dropped_by_peers = 0;  ///< entries of this rank's tokens that found no room where they went
  std::int64_t peer_counts_clamped = 0;       ///< counts that other ranks sent and that cannot be
  [[nodiscard]] constexpr bool any() const noexcept {
    return ids_out_of_range != 0 || rows_over_capacity != 0 || token_counts_clamped != 0 ||
           entries_dropped_by_peers != 0 || peer_counts_clamped != 0;
  }
};

/// One buffer of an Exchange.
struct MemoryItem {
  std::string name;     ///< "rows"
  std::string formula;  ///< "max_rows * hidden * 2 B"
  std::int64_t bytes = 0;
  std::string where;  ///< "device", "pinned host", "shared"
};

/// Every buffer of an Exchange, before anything is allocated.
struct MemoryReport {
  std::vector<MemoryItem> items;
  [[nodiscard]] MOELINK_EXPORT std::int64_t total_bytes() const noexcept;
  [[nodiscard]] MOELINK_EXPORT std::string to_string() const;
};

/// Device memory that several Exchanges take turns in, so that, say, prefill and decode do not pay twice. Exchanges
/// that share one are never in flight together: a dispatch between another's dispatch and combine is out_of_order. The
/// ExpertBatch of one is valid until the next dispatch of any of them. Cheap to copy (shared state).
class MOELINK_EXPORT Workspace {
 public:
  /// Large enough for each of `configs` (the largest decides).
  Workspace(const Communicator& communicator, const std::vector<ExchangeConfig>& configs);

  [[nodiscard]] Device device() const;
  [[nodiscard]] std::int64_t size_bytes() const;

  class State;  // src/exchange
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// The half of a call that has been sent; what receives it consumes it. Move-only: it can be received once.
class MOELINK_EXPORT DispatchTicket {
 public:
  DispatchTicket(DispatchTicket&& other) noexcept : call_(std::exchange(other.call_, 0)) {}
  DispatchTicket& operator=(DispatchTicket&& other) noexcept {
    call_ = std::exchange(other.call_, 0);
    return *this;
  }

 private:
  friend class Exchange;
  explicit DispatchTicket(std::uint64_t call) noexcept : call_(call) {}
  std::uint64_t call_;  // number of the Exchange's call; 0: moved from
};
class MOELINK_EXPORT CombineTicket {
 public:
  CombineTicket(CombineTicket&& other) noexcept : call_(std::exchange(other.call_, 0)) {}
  CombineTicket& operator=(CombineTicket&& other) noexcept {
    call_ = std::exchange(other.call_, 0);
    return *this;
  }

 private:
  friend class Exchange;
  explicit CombineTicket(std::uint64_t call) noexcept : call_(call) {}
  std::uint64_t call_;
};

/// Moves tokens to experts and back. Construction is collective, compiles every kernel the configuration can need and
/// allocates; after it, no call allocates, compiles, synchronises or logs. Every call can be captured in a CUDA graph
/// and replayed. Calls alternate: dispatch, combine, dispatch, ... on streams the caller orders. One thread at a time.
/// A call that throws has enqueued nothing and changed nothing.
class MOELINK_EXPORT Exchange {
 public:
  Exchange(const Communicator& communicator, const ExchangeConfig& config);
  /// In a workspace shared with other Exchanges; throws ErrorCode::capacity if it is too small for `config`.
  Exchange(const Communicator& communicator, const ExchangeConfig& config, const Workspace& workspace);
  /// The streams it was used on must have passed its last call.
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  /// The memory a configuration would take. Nothing is allocated.
  [[nodiscard]] static MemoryReport memory(const Communicator& communicator, const ExchangeConfig& config);
  [[nodiscard]] const MemoryReport& memory() const;

  /// Enqueues a dispatch. Throws invalid_argument, capacity (a declared maximum is too small) or out_of_order.
  ExpertBatch dispatch(const DispatchArgs& args, StreamView stream);

  /// Enqueues the combine that answers the last dispatch.
  void combine(const CombineArgs& args, StreamView stream);

  /// The same in halves, so that other work runs while rows are under way and no SM waits for them. The only order is
  /// dispatch_send, dispatch_receive, combine_send, combine_receive. Inputs of dispatch (and output and expert_output
  /// of combine) stay valid and unchanged until the stream has passed the receive. In the modes local and
  /// tensor_parallel the first half does it all.
  [[nodiscard]] DispatchTicket dispatch_send(const DispatchArgs& args, StreamView stream);
  ExpertBatch dispatch_receive(DispatchTicket ticket, StreamView stream);
  [[nodiscard]] CombineTicket combine_send(const CombineArgs& args, StreamView stream);
  void combine_receive(CombineTicket ticket, StreamView stream);

  /// Device memory in the shape of ExpertBatch::rows for expert outputs (config.own_expert_output); enough rows for
  /// either layout. `type` must be a declared CombineTypes::expert_output.
  [[nodiscard]] MutableMatrixView expert_output_buffer(DataType type) const;

  /// Enqueues a copy of the counts to pinned host memory: [num_local_experts], valid once the stream has passed it.
  std::span<const std::int32_t> host_counts(StreamView stream);

  /// Throws ErrorCode::data (or a fault) if any call whose stream work has completed met one. Never waits. A data error
  /// is reported once; a fault again and again.
  void check();
  /// The same without throwing, and without clearing.
  [[nodiscard]] DataErrors data_errors() const;

  /// The plan that a dispatch of `num_tokens` of payloads[payload] and its combine would follow, for people ("dispatch
  /// decode 7x128 ...").
  [[nodiscard]] std::string describe_plan(std::int64_t num_tokens, std::size_t payload = 0) const;

  [[nodiscard]] const ExchangeConfig& config() const;
  /// How rows travel: never automatic.
  [[nodiscard]] Mode mode() const;
  /// The (physical) experts of this rank: [first_expert(), first_expert() + ExpertBatch::num_local_experts).
  [[nodiscard]] std::int64_t first_expert() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink
