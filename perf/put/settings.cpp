#include "perf/put/settings.hpp"

#include <CLI/CLI.hpp>

#include "perf/common/size_list.hpp"

namespace moelink::perf {

void PutFlags::add_to(CLI::App& app) {
  sizes.factor = 4;
  place.device_name = "host";
  add_sweep_flags(app, sizes, "--sizes", "put, in bytes (K, M, G)", "8", "2M");
  add_rank_flags(app, ranks);
  add_output_flags(app, output);
  app.add_option("--transport", transports,
                 "loopback, verbs, ucx, or several: ucx,loopback (default: the library's choice)")
      ->group("Place");
  app.add_option("-n,--iters", iterations, "puts of each measurement")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str()
      ->group("Measuring");
  app.add_option("-w,--warmup_iters", warmup, "puts before that do not count")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str()
      ->group("Measuring");
  app.add_option("-c,--check", check, "rounds in which every byte is checked; 0: none")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group("Measuring");
  app.add_option("-t,--tx-depth", depth, "puts in flight while bandwidth is measured")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group("Measuring");
}

std::vector<std::string> PutFlags::transport_list() const {
  if (transports.empty()) return {""};
  std::vector<std::string> list;
  for (const std::string_view name : split_commas(transports)) list.emplace_back(name);
  return list;
}

}  // namespace moelink::perf
