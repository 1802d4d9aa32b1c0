#include "perf/moe/settings.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <CLI/CLI.hpp>

#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

/// The value of an enum by the name that the library gives it.
template <class Enum, std::size_t count>
Enum value_of(const std::string& name, const char* flag, const std::array<Enum, count>& values) {
  std::string known;
  for (const Enum value : values) {
    if (moelink::name_of(value) == name) return value;
    known += " " + std::string(moelink::name_of(value));
  }
  throw UsageError(fmt::format("{}: '{}' is not known; give one of:{}", flag, name, known));
}

constexpr std::array kLayouts = {Layout::packed, Layout::batched};
constexpr std::array kPayloads = {DataType::bfloat16, DataType::float16, DataType::float32, DataType::bytes};
constexpr std::array kWeightModes = {WeightMode::on_combine, WeightMode::on_input, WeightMode::none};
constexpr std::array kIndexTypes = {IndexType::int32, IndexType::int64};

}  // namespace

void MoeFlags::add_to(CLI::App& app) {
  add_sweep_flags(app, tokens, "--tokens", "number of tokens", "1", "4096");
  add_model_flags(app, model);
  add_measure_flags(app, measure);
  add_baseline_flag(app, baseline, {"naive"});
  add_place_flags(app, place, {"local"});
  add_output_flags(app, output);
  const auto add = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str()->group("Traffic");
  };
  add("--routing", routing, "uniform, zipf (1/rank), khot (all tokens to the same experts) or one (all to one expert)");
  add("--layout", layout, "packed (grouped by expert) or batched (a fixed capacity per expert)");
  add("--alignment", alignment, "packed: each expert's first row is a multiple of this power of two");
  add("--capacity", capacity, "batched: rows per expert, more are dropped; 0: what the fullest expert gets")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  add("--payload", payload, "bf16, fp16, fp32 or bytes (opaque rows of one byte per element; combine takes bf16)");
  add("--scale-bytes", scale_bytes, "bytes of quantisation scales that travel with each row")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20));
  add("--weights", weights, "on_combine, on_input or none: who multiplies by the routing weights");
  add("--index", index, "int32 or int64 expert ids");
  add("--max-sms", max_sms, "most SMs (host: threads) one call may occupy; 0: as many as are useful")
      ->check(CLI::Range(0, 1 << 20));
}

MoeSettings::MoeSettings(const MoeFlags& flags)
    : device(flags.place.device()),
      routing(routing_of_name(flags.routing)),
      layout(value_of(flags.layout, "--layout", kLayouts)),
      payload(value_of(flags.payload, "--payload", kPayloads)),
      weight_mode(value_of(flags.weights, "--weights", kWeightModes)),
      index(value_of(flags.index, "--index", kIndexTypes)),
      alignment(flags.alignment),
      capacity(flags.capacity),
      scale_bytes(flags.scale_bytes),
      max_sms(flags.max_sms),
      seed(flags.place.seed) {
  if (alignment < 1 || !std::has_single_bit(static_cast<unsigned>(alignment))) {
    throw UsageError(fmt::format("--alignment: {} is not a power of two", alignment));
  }
  if (capacity != 0 && layout != Layout::batched) {
    throw UsageError("--capacity bounds the experts of --layout batched; packed rows always fit");
  }
  if (payload == DataType::bytes && weight_mode == WeightMode::on_input) {
    throw UsageError("--weights on_input multiplies rows, which opaque --payload bytes cannot be; give on_combine");
  }
}

}  // namespace moelink::perf
