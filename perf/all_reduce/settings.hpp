// The command line of all_reduce_perf, checked.
#pragma once

#include <string>
#include <vector>

#include "moelink/all_reduce.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/ranks.hpp"

namespace moelink::perf {

struct AllReduceFlags {
  SweepFlags sizes;
  MeasureFlags measure;
  PlaceFlags place;
  RankFlags ranks;
  OutputFlags output;
  std::string type = "bf16";
  std::string algorithm = "automatic";
  std::string baseline = "none";
  bool in_place = false;

  void add_to(CLI::App& app);

  [[nodiscard]] DataType data_type() const;
  /// What to run on every size: the named one, or for "each" all that sum inside a node; the baseline comes last.
  [[nodiscard]] std::vector<AllReduceAlgorithm> algorithms() const;
};

}  // namespace moelink::perf
