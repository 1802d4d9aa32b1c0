// What the engine's programs have in common: which model, where, in how much memory.
#pragma once

#include <cstdint>
#include <string>

#include "engine/frontend/parallel_flags.hpp"
#include "engine/model/model.hpp"

namespace moelink::engine {

struct EngineFlags : ParallelFlags {
  std::string model;
  std::string type = "auto";
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;
  std::int64_t step_rows = 256;
  std::int64_t num_sequences = 64;

  void add_to(CLI::App& app);
  /// Throws perf::UsageError, naming the flag, for values that do not go together or that this machine cannot follow.
  [[nodiscard]] ModelOptions model_options() const;
};

/// "loading: 40 %", on a terminal one line that changes, else a line at each quarter.
class LoadingProgress {
 public:
  /// `speaks`: one rank does for all.
  explicit LoadingProgress(bool speaks);
  void operator()(double part);

 private:
  bool speaks_;
  bool terminal_;
  int last_quarter_ = 0;
};

}  // namespace moelink::engine
