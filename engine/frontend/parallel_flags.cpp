#include "engine/frontend/parallel_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "perf/common/usage_error.hpp"

namespace moelink::engine {
namespace {

using perf::UsageError;

struct NamedMode {
  const char* name;
  Mode mode;
};
constexpr NamedMode kModes[] = {
    {"automatic", Mode::automatic}, {"local", Mode::local},   {"tensor_parallel", Mode::tensor_parallel},
    {"tp", Mode::tensor_parallel},  {"nvlink", Mode::nvlink}, {"p2p", Mode::p2p}};

std::vector<std::string> names_of_modes() {
  std::vector<std::string> names;
  for (const NamedMode& known : kModes) names.emplace_back(known.name);
  return names;
}

Mode mode_of(const std::string& name) {
  const auto* const known = std::ranges::find(kModes, name, &NamedMode::name);
  return known == std::end(kModes) ? Mode::automatic : known->mode;  // the parser has refused other names
}

}  // namespace

void ParallelFlags::add_to(CLI::App& app) {
  perf::add_rank_flags(app, ranks);
  perf::add_place_flags(app, place, names_of_modes());
  app.add_option("--parallel", parallel,
                 "data: each rank has requests of its own, experts are split; tensor: all ranks work on all requests")
      ->check(CLI::IsMember({"data", "tensor"}))
      ->capture_default_str()
      ->group("Place");
  payload.add_to(app, "Place");
}

void ParallelFlags::prepare_driver() const {
  // cuBLAS would load its kernels when they are first used, which may wait for the GPU; where ranks share one, it may be
  // busy with a rank that waits for this one.
  if (ranks.num_ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

ModelOptions ParallelFlags::model_options() const {
  ModelOptions options;
  options.mode = mode_of(place.mode);
  options.parallelism = parallel == "data" ? Parallelism::data : Parallelism::tensor;
  options.payload = payload.value();
  const bool sends_rows = options.mode == Mode::nvlink || options.mode == Mode::p2p;
  if (options.parallelism == Parallelism::tensor && sends_rows) {
    throw UsageError(
        fmt::format("--mode {} sends rows to other ranks, which have them all with --parallel tensor; give "
                    "--mode tensor_parallel, or --parallel data",
                    place.mode));
  }
  if (options.parallelism == Parallelism::data && options.mode == Mode::tensor_parallel) {
    throw UsageError(
        "--mode tensor_parallel is for ranks with the same rows, and with --parallel data each has its own; give "
        "--parallel tensor, or --mode nvlink or p2p");
  }
  return options;
}

void ParallelFlags::require(int num_ranks) const {
  if (mode_of(place.mode) == Mode::local && num_ranks != 1) {
    throw UsageError(fmt::format(
        "--mode local is for one rank, and there are {}; give --mode nvlink, p2p or tensor_parallel", num_ranks));
  }
}

}  // namespace moelink::engine
