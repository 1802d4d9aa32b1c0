// What the experts of the check compute: something else for every expert, so that a row at the wrong expert, or a
// weight on the wrong row, cannot cancel out.
#pragma once

#include <cstdint>

namespace moelink::perf {

/// y = x * scale + shift, product and sum each rounded to float. No two of 16384 experts have the same pair, and
/// neighbours are far apart: a small difference would be lost when outputs are rounded.
struct Expert {
  float scale;
  float shift;

  explicit Expert(std::int64_t id)
      : scale(0.5F + static_cast<float>(37 * id % 64) / 64.0F),
        shift(static_cast<float>((101 * id + id / 64) % 256) / 128.0F - 1.0F) {}

  [[nodiscard]] float operator()(float x) const { return x * scale + shift; }
};

}  // namespace moelink::perf
