// How ranks share the work of a model, and where they are: flags of the engine's programs and of engine_perf.
#pragma once

#include <string>

#include "engine/model/model.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/quantization_flag.hpp"
#include "perf/common/ranks.hpp"

namespace moelink::engine {

struct ParallelFlags {
  std::string parallel = "data";
  perf::QuantizationFlag payload;
  perf::PlaceFlags place;
  perf::RankFlags ranks;

  void add_to(CLI::App& app);

  /// Before anything looks for a device: where ranks share a GPU, all kernels are loaded when the driver initialises.
  void prepare_driver() const;

  /// Mode, parallelism and payload. Throws perf::UsageError, naming the flags, for those that do not go together.
  [[nodiscard]] ModelOptions model_options() const;

  /// Throws perf::UsageError where these flags are not for so many ranks. On every rank, before it does anything.
  void require(int num_ranks) const;
};

}  // namespace moelink::engine
