// Measures and checks one format on one number of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "moelink/quantize.hpp"
#include "perf/common/copy_limit.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/payload.hpp"
#include "perf/common/statistics.hpp"
#include "perf/reference/block_format.hpp"
#include "perf/reference/mismatch.hpp"

namespace moelink::perf {

struct QuantizeResult {
  std::int64_t moved_bytes = 0;  ///< rows read, elements and scales written
  Percentiles us = {};
  double copy_us = 0;  ///< a copy that reads and writes as many bytes together
  int num_sets = 0;
  std::optional<std::int64_t> wrong = {};
  std::string first_wrong = {};

  [[nodiscard]] double gbps() const { return us.p50 > 0 ? static_cast<double>(moved_bytes) / us.p50 / 1e3 : 0; }
  [[nodiscard]] double copy_fraction() const { return us.p50 > 0 ? copy_us / us.p50 : 0; }
};

class QuantizeBench {
 public:
  QuantizeBench(Device device, int num_threads, const MeasureFlags& measure);

  /// bf16 rows of `columns` elements, of random numbers.
  [[nodiscard]] QuantizeResult run(Quantization format, std::int64_t num_rows, std::int64_t columns,
                                   std::uint64_t seed);
  [[nodiscard]] int num_threads() const noexcept { return team_.size(); }

 private:
  struct Set;
  void check(const Set& set, const BlockFormat& format, Mismatches& mismatches);

  const MeasureFlags& measure_;
  Team team_;
  Stream stream_;
  CopyLimit limit_;
};

}  // namespace moelink::perf
