#include "perf/engine/settings.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "engine/model/shard.hpp"
#include "moelink/error.hpp"
#include "perf/common/size_list.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

DataType type_of(const std::string& name) {
  for (const DataType type : {DataType::bfloat16, DataType::float32}) {
    if (name_of(type) == name) return type;
  }
  throw UsageError(fmt::format("--type: '{}' is not known; give bf16 or fp32", name));
}

std::vector<std::int64_t> rows_of(const std::string& list, const char* flag) {
  const std::vector<std::int64_t> rows = parse_size_list(list, flag);
  for (const std::int64_t count : rows) {
    if (count < 1) throw UsageError(fmt::format("{}: {} rows; give at least 1", flag, count));
  }
  return rows;
}

/// Heads are split over ranks that work on the same rows.
void require_even_heads(const engine::ModelConfig& config, int num_ranks) {
  try {
    (void)engine::shard_of(config, {.rank = 0, .size = num_ranks}, {});
  } catch (const Error& error) {
    throw UsageError(fmt::format("--heads, --kv-heads and --parallel tensor: {}", error.what()));
  }
}

}  // namespace

void EngineFlags::add_to(CLI::App& app) {
  const auto size = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str()->check(CLI::Range(1, 1 << 24))->group("Model");
  };
  size("--layers", layers, "decoder layers");
  size("--hidden", hidden, "elements of a row");
  size("--heads", heads, "query heads");
  size("--kv-heads", kv_heads, "key and value heads");
  size("--head-dim", head_dim, "elements of a head");
  size("--experts", experts, "experts of a layer");
  size("--top-k", top_k, "experts of a row");
  size("--width", width, "intermediate elements of an expert");
  size("--vocabulary", vocabulary, "tokens");
  app.add_option("--type", type, "bf16 or fp32")->capture_default_str()->group("Model");
  app.add_option("--prefill", prefill, "rows of a prompt's chunk, a list")->capture_default_str()->group("Steps");
  app.add_option("--decode", decode, "rows of a decode step, a list")->capture_default_str()->group("Steps");
  app.add_option("--context", context, "positions that rows of decode attend to")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group("Steps");
  app.add_option("-n", samples, "samples of each measurement")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  parallel.add_to(app);
}

EngineSettings::EngineSettings(const EngineFlags& flags, const Communicator& communicator)
    : model(flags.parallel.model_options()),
      prefill(rows_of(flags.prefill, "--prefill")),
      decode(rows_of(flags.decode, "--decode")),
      context(flags.context),
      samples(flags.samples),
      threads(threads_of_rank(communicator, flags.parallel.place)),
      seed(flags.parallel.place.seed) {
  flags.parallel.require(communicator.size());
  model.type = type_of(flags.type);
  if (flags.heads % flags.kv_heads != 0) {
    throw UsageError(fmt::format("--kv-heads: {} does not divide {} heads", flags.kv_heads, flags.heads));
  }
  if (flags.top_k > 32 || flags.top_k > flags.experts) {
    throw UsageError(fmt::format("--top-k: {} of {} experts; give at most 32, and no more than there are", flags.top_k,
                                 flags.experts));
  }
  config = {.architecture = engine::Architecture::qwen3_moe,
            .vocab_size = flags.vocabulary,
            .hidden = flags.hidden,
            .num_layers = flags.layers,
            .num_heads = flags.heads,
            .num_kv_heads = flags.kv_heads,
            .head_dim = flags.head_dim,
            .num_experts = flags.experts,
            .top_k = flags.top_k,
            .expert_intermediate = flags.width,
            .max_positions = std::int64_t{1} << 20,
            .norm_epsilon = 1e-6F,
            .rope_theta = 1e6,
            .qk_norm = engine::QkNorm::per_head,
            .clip_qkv = {},
            .end_tokens = {}};
  if (!has_rows_of_its_own()) require_even_heads(config, communicator.size());
}

}  // namespace moelink::perf
