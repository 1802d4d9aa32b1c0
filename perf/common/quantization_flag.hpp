// --payload of programs that run a model: the block formats, or none.
#pragma once

#include <string>

#include "moelink/types.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the name that CLI11 has
class App;
}

namespace moelink::perf {

/// What rows are quantised to on their way to experts.
struct QuantizationFlag {
  std::string name = "none";

  void add_to(CLI::App& app, const char* group);
  [[nodiscard]] Quantization value() const;
};

}  // namespace moelink::perf
