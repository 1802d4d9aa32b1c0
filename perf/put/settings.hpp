// The command line of put_perf, checked.
#pragma once

#include <string>
#include <vector>

#include "perf/common/flags.hpp"
#include "perf/common/ranks.hpp"

namespace moelink::perf {

struct PutFlags {
  SweepFlags sizes;
  PlaceFlags place;
  RankFlags ranks;
  OutputFlags output;
  std::string transports;  ///< separated by commas; empty: the one that the library chooses
  int iterations = 1000;
  int warmup = 50;
  int check = 1;
  int depth = 16;

  void add_to(CLI::App& app);
  /// Names for PutsConfig.
  [[nodiscard]] std::vector<std::string> transport_list() const;
};

}  // namespace moelink::perf
