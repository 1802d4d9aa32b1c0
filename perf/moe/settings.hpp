// What moe_perf was asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moelink/exchange.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/ranks.hpp"
#include "perf/common/routing.hpp"
#include "perf/reference/sources.hpp"

namespace moelink::perf {

/// As on the command line.
struct MoeFlags {
  SweepFlags tokens;
  MeasureFlags measure;
  PlaceFlags place;
  RankFlags ranks;
  OutputFlags output;
  ModelFlags model;
  std::string baseline;
  std::string tokens_per_rank;
  std::string transport;
  std::string phase = "fused";
  std::string routing = "uniform";
  std::string layout = "packed";
  std::string payload = "bf16";
  std::string weights = "on_combine";
  std::string index = "int32";
  int alignment = 1;
  std::int64_t capacity = 0;
  std::int64_t scale_bytes = 0;
  bool prequantized = false;
  int max_sms = 0;
  int tp_size = 1;
  int replicas = 1;
  bool fp32_partials = false;
  std::string sum = "automatic";

  void add_to(CLI::App& app);

 private:
  void add_rank_traffic_flags(CLI::App& app);
};

/// The same, understood, on one rank: what every case of a run shares.
struct MoeSettings {
  /// Throws UsageError for flags that these ranks cannot follow.
  MoeSettings(const MoeFlags& flags, const Communicator& communicator);

  Device device;
  Mode mode;
  int rank;
  int num_ranks;
  int tp_size;
  int replicas;
  bool fp32_partials;
  TensorParallelSum sum;
  std::string transport;  ///< p2p: of puts, by its flag; empty: the library chooses
  bool split;             ///< calls in halves, each timed
  RoutingKind routing;
  Layout layout;
  DataType payload;       ///< of the tokens before they are quantised, if they are
  Quantization quantize;  ///< what becomes of them
  bool prequantized;      ///< before dispatch gets them; else by it
  WeightMode weight_mode;
  IndexType index;
  int alignment;
  std::int64_t capacity;  ///< batched: rows per expert; 0: as many as the fullest expert gets
  std::int64_t scale_bytes;
  int max_sms;
  std::uint64_t seed;
  std::vector<std::vector<std::int64_t>> token_counts;  ///< of each source, for one case after the other

  /// Element type of expert outputs and of the result: the payload's, or bf16 if that cannot be computed on.
  [[nodiscard]] DataType computed() const { return payload == DataType::bytes ? DataType::bfloat16 : payload; }
  /// What puts go over, as far as somebody has said so: by the flag, or by MOELINK_PUT.
  [[nodiscard]] std::string said_transport() const;
  [[nodiscard]] bool is_quantized() const { return quantize != Quantization::none; }
  /// As --payload names it.
  [[nodiscard]] std::string_view payload_name() const { return is_quantized() ? name_of(quantize) : name_of(payload); }
  /// Experts read rows that hold no number as it is: bytes, and blocks with scales.
  [[nodiscard]] bool rows_are_opaque() const { return payload == DataType::bytes || is_quantized(); }
  /// Every rank, or group of ranks, has tokens of its own.
  [[nodiscard]] bool is_data_parallel() const { return mode == Mode::nvlink || mode == Mode::p2p; }
  /// What a rank gives others of a sum is its part, rounded.
  [[nodiscard]] bool rounds_parts() const { return mode != Mode::local && !fp32_partials; }
  [[nodiscard]] Placement placement(std::int64_t num_experts) const {
    return make_placement(num_ranks, mode == Mode::tensor_parallel ? num_ranks : tp_size, num_experts, replicas);
  }

 private:
  void require_payload_of_flags(const MoeFlags& flags) const;
  void require_mode_of_flags(const MoeFlags& flags) const;
};

/// "4096", or "5,0,3" where sources differ.
[[nodiscard]] std::string text_of_tokens(const std::vector<std::int64_t>& tokens_of_source);

}  // namespace moelink::perf
