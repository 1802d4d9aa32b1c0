#include "engine/generate/settings.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "moelink/error.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::engine {
namespace {

using perf::UsageError;

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string contents{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw UsageError(fmt::format("--file: '{}' cannot be read", path));
  return contents;
}

DataType type_of(const std::string& name, Device device) {
  if (name == "auto") return device.is_host() ? DataType::float32 : DataType::bfloat16;
  const DataType type = name == "fp32" ? DataType::float32 : DataType::bfloat16;
  if (device.is_host() && type != DataType::float32) {
    throw UsageError(fmt::format("--type: '{}' is for GPUs; the host computes in fp32", name));
  }
  return type;
}

}  // namespace

void GenerateFlags::add_to(CLI::App& app) {
  app.add_option("model", model, "folder with config.json, tokenizer.json and safetensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  const auto texts = [&](const char* name, std::vector<std::string>& values, const char* help) {
    return app.add_option(name, values, help)->allow_extra_args(false)->group("Request");
  };
  texts("-p,--prompt", prompts, "a text to continue; may be repeated");
  texts("-f,--file", files, "a file with such a text; may be repeated");
  app.add_option("-n,--max-tokens", max_tokens, "tokens to generate; 0: as many as sequences can hold")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->capture_default_str()
      ->group("Request");
  app.add_option("--temperature", sampling.temperature, "0: the likeliest token, always")
      ->capture_default_str()
      ->group("Request");
  app.add_option("--top-k", sampling.top_k, "only so many of the likeliest tokens; 0: all")
      ->capture_default_str()
      ->group("Request");
  app.add_option("--top-p", sampling.top_p, "of those, the fewest that reach this probability together")
      ->capture_default_str()
      ->group("Request");
  app.add_flag("--ignore-end", ignore_end, "go on behind the model's end tokens")->group("Request");
  app.add_flag("--show-tokens", show_tokens, "print ids of tokens instead of text")->group("Request");
  perf::add_rank_flags(app, ranks);
  perf::add_place_flags(app, place, {"automatic", "local", "tensor_parallel", "nvlink", "p2p"});
  app.add_option("--parallel", parallel,
                 "data: each rank has prompts of its own, experts are split; tensor: all ranks work on all prompts")
      ->check(CLI::IsMember({"data", "tensor"}))
      ->capture_default_str()
      ->group("Place");
  app.add_option("--type", type, "of weights and cache: fp32, bf16 (GPUs), or auto: bf16 on GPUs, fp32 on the host")
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
}

GenerateSettings::GenerateSettings(const GenerateFlags& flags) : prompts(flags.prompts) {
  for (const std::string& path : flags.files) {
    prompts.push_back(contents_of(path));
  }
  if (prompts.empty()) {
    throw UsageError("nothing to continue: give --prompt or --file");
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) throw UsageError(fmt::format("prompt {} is empty: give it at least one character", i + 1));
  }
  try {
    check_sampling(flags.sampling);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const std::vector<std::pair<std::string, Mode>> modes = {{"automatic", Mode::automatic},
                                                           {"local", Mode::local},
                                                           {"tensor_parallel", Mode::tensor_parallel},
                                                           {"nvlink", Mode::nvlink},
                                                           {"p2p", Mode::p2p}};
  for (const auto& [name, mode] : modes) {
    if (name == flags.place.mode) model.mode = mode;
  }
  model.type = type_of(flags.type, flags.place.device());
  model.parallelism = flags.parallel == "data" ? Parallelism::data : Parallelism::tensor;
  const std::int64_t decode_rows = std::min<std::int64_t>(64, flags.step_rows);
  model.limits = {.max_rows = flags.step_rows,
                  .max_decode_rows = decode_rows,
                  .max_logit_rows = decode_rows,
                  .max_sequences = decode_rows,
                  .num_pages = flags.num_pages == 0 ? (4096 + flags.page_size - 1) / flags.page_size : flags.num_pages,
                  .page_size = flags.page_size};
  model.time_exchange = true;
}

}  // namespace moelink::engine
