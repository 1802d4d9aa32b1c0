#include "perf/common/flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>

#include "perf/common/size_list.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

constexpr const char* kSizes = "Sizes";
constexpr const char* kMeasuring = "Measuring";
constexpr const char* kPlace = "Place";
constexpr const char* kShape = "Shape";
constexpr const char* kOutput = "Output";

std::string names_of(const std::vector<Model>& models) {
  std::string names;
  for (const Model& model : models) {
    names += (names.empty() ? "" : ", ") + model.name;
  }
  return names;
}

}  // namespace

std::vector<std::int64_t> SweepFlags::sizes() const {
  if (!list.empty()) return parse_size_list(list, "the list of sizes");
  return size_sweep(parse_size(begin, "-b"), parse_size(end, "-e"), factor);
}

TimingOptions MeasureFlags::timing() const {
  return {.warmup = warmup, .samples = samples, .graph_replays = graph_replays, .cold_cache = cache == "cold"};
}

Device PlaceFlags::device() const {
  if (device_name == "auto") return Device::best();
  if (device_name == "host") return Device::host();
  int ordinal = device_name == "cuda" ? 0 : -1;
  if (device_name.starts_with("cuda:")) {
    const char* end = device_name.data() + device_name.size();
    if (std::from_chars(device_name.data() + 5, end, ordinal).ptr != end) ordinal = -1;
  }
  if (ordinal < 0) {
    throw UsageError(fmt::format("--device: '{}' is not known; give auto, host, cuda or cuda:<ordinal>", device_name));
  }
  if (ordinal >= Device::cuda_count()) {
    throw UsageError(
        fmt::format("--device: {} was asked for, but {} CUDA devices can be used here; give --device host "
                    "to run without one",
                    device_name, Device::cuda_count()));
  }
  return Device::cuda(ordinal);
}

std::vector<Model> ModelFlags::models() const {
  std::vector<Model> models = models_of_names(names);
  for (Model& model : models) {
    const Model published = model;
    if (hidden != 0) model.hidden = hidden;
    if (num_experts != 0) model.num_experts = num_experts;
    if (top_k != 0) model.top_k = top_k;
    if (model.hidden != published.hidden || model.num_experts != published.num_experts ||
        model.top_k != published.top_k) {
      model.name = "custom";
    }
  }
  return models;
}

void add_sweep_flags(CLI::App& app, SweepFlags& flags, const std::string& list_flag, const std::string& what,
                     const std::string& begin, const std::string& end) {
  flags.begin = begin;
  flags.end = end;
  auto* first = app.add_option("-b,--minsize", flags.begin, "smallest " + what)->capture_default_str();
  auto* last = app.add_option("-e,--maxsize", flags.end, "largest " + what)->capture_default_str();
  auto* factor = app.add_option("-f,--stepfactor", flags.factor, "factor from one to the next")->capture_default_str();
  auto* list = app.add_option(list_flag, flags.list, "a list instead: 0,1,33,4K");
  for (CLI::Option* option : {first, last, factor}) {
    option->group(kSizes);
    list->excludes(option);
  }
  list->group(kSizes)->type_name("LIST");
}

void add_measure_flags(CLI::App& app, MeasureFlags& flags) {
  app.add_option("-n,--iters", flags.samples, "samples that count; each times several calls")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str()
      ->group(kMeasuring);
  app.add_option("-w,--warmup_iters", flags.warmup, "samples before that do not")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str()
      ->group(kMeasuring);
  app.add_option("-c,--check", flags.check, "rounds in which every value is checked; 0: none")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str()
      ->group(kMeasuring);
  app.add_option("-G,--cudagraph", flags.graph_replays,
                 "CUDA: replays of the captured graph per sample; 0: no graph, calls are launched one by one")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str()
      ->group(kMeasuring);
  app.add_option("--sets", flags.num_sets, "calls of a sample, each on buffers of its own; 0: by their size")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(kMeasuring);
  app.add_option("--cache", flags.cache, "CUDA: whether the L2 is emptied before a sample")
      ->check(CLI::IsMember({"cold", "warm"}))
      ->capture_default_str()
      ->group(kMeasuring);
}

void add_place_flags(CLI::App& app, PlaceFlags& flags, const std::vector<std::string>& modes) {
  flags.mode = modes.front();
  app.add_option("--mode", flags.mode, "how ranks take part")
      ->check(CLI::IsMember(modes))
      ->capture_default_str()
      ->group(kPlace);
  app.add_option("--device", flags.device_name, "auto (CUDA if there is one, else host), host, cuda or cuda:<ordinal>")
      ->capture_default_str()
      ->group(kPlace);
  app.add_option("--threads", flags.threads,
                 "threads of the host backend, the copy limit and the check; 0: one per core")
      ->envname("MOELINK_HOST_THREADS")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group(kPlace);
  app.add_option("--seed", flags.seed, "data and routing follow from it")->capture_default_str()->group(kPlace);
}

void add_output_flags(CLI::App& app, OutputFlags& flags) {
  app.add_option("--json", flags.json_path, "also write the results there, as JSON")->type_name("FILE")->group(kOutput);
  app.add_option("--csv", flags.csv_path, "also write the results there, as CSV")->type_name("FILE")->group(kOutput);
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  const std::vector<Model> known(known_models().begin(), known_models().end());
  app.add_option("--model", flags.names, "'all' or names, separated by commas: " + names_of(known))
      ->capture_default_str()
      ->group(kShape);
  app.add_option("--hidden", flags.hidden, "elements per token, instead of the model's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->group(kShape);
  app.add_option("--experts", flags.num_experts, "experts, instead of the model's")
      ->check(CLI::Range(1, 16384))
      ->group(kShape);
  app.add_option("--topk", flags.top_k, "experts per token, instead of the model's")
      ->check(CLI::Range(1, 32))
      ->group(kShape);
}

void add_baseline_flag(CLI::App& app, std::string& baseline, const std::vector<std::string>& known) {
  baseline = "none";
  std::vector<std::string> choices = known;
  choices.insert(choices.begin(), "none");
  app.add_option("--baseline,--reference", baseline, "what to time beside it, in the same run")
      ->check(CLI::IsMember(choices))
      ->capture_default_str()
      ->group(kMeasuring);
}

}  // namespace moelink::perf
