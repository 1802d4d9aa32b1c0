#include "engine/frontend/engine_flags.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdio>

namespace moelink::engine {
namespace {

DataType type_of(const std::string& name, Device device) {
  if (name == "auto") return device.is_host() ? DataType::float32 : DataType::bfloat16;
  return name == "fp32" ? DataType::float32 : DataType::bfloat16;
}

}  // namespace

void EngineFlags::add_to(CLI::App& app) {
  app.add_option("model", model, "folder with config.json, tokenizer.json and safetensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  ParallelFlags::add_to(app);
  app.add_option("--type", type,
                 "of weights and what products read: fp32, bf16, or auto: bf16 on GPUs, fp32 on the host")
      ->check(CLI::IsMember({"auto", "fp32", "bf16"}))
      ->capture_default_str()
      ->group("Place");
  const auto size = [&](const char* name, std::int64_t& value, std::int64_t least, std::int64_t most,
                        const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(least, most))->capture_default_str()->group("Cache");
  };
  size("--pages", num_pages, 0, 1 << 28, "pages of the cache; 0: enough for 4096 positions");
  size("--page-size", page_size, 1, 1 << 16, "positions of a page");
  size("--step-rows", step_rows, 1, 1 << 20, "rows of one step: longer prompts go in chunks");
  size("--sequences", num_sequences, 1, 1 << 16, "requests that a rank has at the same time; at most --step-rows");
}

ModelOptions EngineFlags::model_options() const {
  prepare_driver();
  ModelOptions options = ParallelFlags::model_options();
  options.type = type_of(type, place.device());
  const std::int64_t decode_rows = std::min(num_sequences, step_rows);
  options.limits = {.max_rows = step_rows,
                    .max_decode_rows = decode_rows,
                    .max_logit_rows = decode_rows,
                    .max_sequences = decode_rows,
                    .num_pages = num_pages == 0 ? (4096 + page_size - 1) / page_size : num_pages,
                    .page_size = page_size};
  options.time_exchange = true;
  return options;
}

LoadingProgress::LoadingProgress(bool speaks) : speaks_(speaks), terminal_(speaks && isatty(STDERR_FILENO) == 1) {}

void LoadingProgress::operator()(double part) {
  const int quarter = static_cast<int>(part * 4);
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[Kloading: {:.0f} %{}", part * 100, part < 1 ? "" : "\r\x1b[K");
    std::fflush(stderr);
  } else if (speaks_ && quarter > last_quarter_) {
    fmt::print(stderr, "loading: {:.0f} %\n", part * 100);
  }
  last_quarter_ = quarter;
}

}  // namespace moelink::engine
