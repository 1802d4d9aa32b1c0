// What moe_perf was asked to do.
#pragma once

#include <cstdint>
#include <string>

#include "moelink/exchange.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/routing.hpp"

namespace moelink::perf {

/// As on the command line.
struct MoeFlags {
  SweepFlags tokens;
  MeasureFlags measure;
  PlaceFlags place;
  OutputFlags output;
  ModelFlags model;
  std::string baseline;
  std::string routing = "uniform";
  std::string layout = "packed";
  std::string payload = "bf16";
  std::string weights = "on_combine";
  std::string index = "int32";
  int alignment = 1;
  std::int64_t capacity = 0;
  std::int64_t scale_bytes = 0;
  int max_sms = 0;

  void add_to(CLI::App& app);
};

/// The same, understood: what every case of a run shares.
struct MoeSettings {
  explicit MoeSettings(const MoeFlags& flags);

  Device device;
  RoutingKind routing;
  Layout layout;
  DataType payload;
  WeightMode weight_mode;
  IndexType index;
  int alignment;
  std::int64_t capacity;  ///< batched: rows per expert; 0: as many as the fullest expert gets
  std::int64_t scale_bytes;
  int max_sms;
  std::uint64_t seed;

  /// Element type of expert outputs and of the result: the payload's, or bf16 if that cannot be computed on.
  [[nodiscard]] DataType computed() const { return payload == DataType::bytes ? DataType::bfloat16 : payload; }
};

}  // namespace moelink::perf
