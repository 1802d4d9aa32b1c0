// One dispatch and combine as data on the host: what goes in, and what has to come out by the reference.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "moelink/exchange.hpp"
#include "reference/local_moe.hpp"

namespace moelink::test {

using Bytes = std::vector<unsigned char>;

/// Everything that shapes a call, and the seed of its contents.
struct Shape {
  std::int64_t num_tokens = 5;
  std::int64_t num_experts = 8;
  int top_k = 2;
  std::int64_t hidden = 32;
  Payload payload = {};
  CombineTypes combine = {};
  IndexType index = IndexType::int32;
  Layout layout = Layout::packed;
  int alignment = 1;
  std::int64_t capacity = -1;  ///< packed: rows in all; batched: rows per expert; -1: enough for every entry
  WeightMode weight_mode = WeightMode::on_combine;
  bool accumulate = false;
  bool shared = false;  ///< combine gets CombineArgs::shared
  bool zero_pads = false;
  bool caller_rows = false;                   ///< rows go to a buffer of the caller's
  std::int64_t extra_stride_bytes = 0;        ///< between the rows of everything that may be strided; a multiple of 16
  std::int64_t device_num_tokens = kNoCount;  ///< device-side count, also out of range
  unsigned seed = 1;

  static constexpr std::int64_t kNoCount = INT64_MIN;
};

/// How ids are drawn.
enum class Routing { uniform, duplicates, one_expert, zipf, holes, garbage };
inline constexpr Routing kAllRoutings[] = {Routing::uniform, Routing::duplicates, Routing::one_expert,
                                           Routing::zipf,    Routing::holes,      Routing::garbage};

/// The configuration that a shape needs, no larger.
[[nodiscard]] ExchangeConfig config_for(const Shape& shape);

[[nodiscard]] std::vector<std::int64_t> draw_ids(const Shape& shape, Routing routing);

/// Inputs, dense, on the host.
struct Problem {
  Shape shape;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  Bytes tokens;        ///< [num_tokens, payload row bytes]
  Bytes scales;        ///< [num_tokens, scale_bytes]
  Bytes shared;        ///< [num_tokens, hidden] of the expert output's type
  Bytes prior_output;  ///< [num_tokens, hidden]: what output holds before combine

  Problem(const Shape& shape_in, std::vector<std::int64_t> ids_in);
  Problem(const Shape& shape_in, Routing routing) : Problem(shape_in, draw_ids(shape_in, routing)) {}

  [[nodiscard]] std::int64_t row_bytes() const;
  [[nodiscard]] std::int64_t num_live_tokens() const;  ///< the device's count, clamped, or all
};

/// What the reference makes of a problem.
struct Expected {
  reference::Routing routing;
  Bytes rows;           ///< pads are zero
  Bytes scales;         ///< pads are zero
  Bytes expert_output;  ///< an expert-specific transform of rows, so that misrouted tokens cannot cancel; pads are NaN
  Bytes output;

  explicit Expected(const Problem& problem);
};

}  // namespace moelink::test
