#include "perf/moe/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <CLI/CLI.hpp>
#include <cstdlib>

#include "perf/common/size_list.hpp"
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

constexpr std::array kModes = {Mode::local, Mode::tensor_parallel, Mode::nvlink, Mode::p2p};
constexpr std::array kSums = {TensorParallelSum::automatic, TensorParallelSum::push, TensorParallelSum::pull,
                              TensorParallelSum::two_shot,  TensorParallelSum::nvls, TensorParallelSum::separate};
constexpr std::array kLayouts = {Layout::packed, Layout::batched};
constexpr std::array kPayloads = {DataType::bfloat16, DataType::float16, DataType::float32, DataType::bytes};
constexpr std::array kFormats = {Quantization::fp8, Quantization::fp8_pow2, Quantization::mxfp8, Quantization::mxfp4,
                                 Quantization::nvfp4};
constexpr std::array kWeightModes = {WeightMode::on_combine, WeightMode::on_input, WeightMode::none};
constexpr std::array kIndexTypes = {IndexType::int32, IndexType::int64};

/// What --payload names: rows of a type, or of a block format, made of bf16.
struct PayloadKind {
  DataType type;
  Quantization quantize;
};
PayloadKind payload_of_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  std::string known;
  for (const DataType type : kPayloads) {
    if (name_of(type) == name) return {type, Quantization::none};
    known += " " + std::string(name_of(type));
  }
  for (const Quantization format : kFormats) {
    if (name_of(format) == name) return {DataType::bfloat16, format};
    known += " " + std::string(name_of(format));
  }
  throw UsageError(fmt::format("--payload: '{}' is not known; give one of:{}", name, known));
}

/// The tokens of each source, from those of each rank.
std::vector<std::int64_t> tokens_per_source(const std::vector<std::int64_t>& of_rank, const Placement& placement) {
  if (of_rank.size() != static_cast<std::size_t>(placement.num_ranks)) {
    throw UsageError(fmt::format("--tokens-per-rank: {} numbers for {} ranks; give one for each", of_rank.size(),
                                 placement.num_ranks));
  }
  std::vector<std::int64_t> of_source;
  for (int rank = 0; rank < placement.num_ranks; ++rank) {
    const std::int64_t tokens = of_rank[static_cast<std::size_t>(rank)];
    if (placement.source_of(rank) == static_cast<int>(of_source.size())) of_source.push_back(tokens);
    if (tokens != of_source.back()) {
      throw UsageError(
          fmt::format("--tokens-per-rank: rank {} has {} tokens, but passes the same as a rank with {}; "
                      "give equal numbers inside a group",
                      rank, tokens, of_source.back()));
    }
  }
  return of_source;
}

std::vector<std::vector<std::int64_t>> token_counts_of(const MoeFlags& flags, const Placement& placement) {
  if (!flags.tokens_per_rank.empty()) {
    return {tokens_per_source(parse_size_list(flags.tokens_per_rank, "--tokens-per-rank"), placement)};
  }
  std::vector<std::vector<std::int64_t>> counts;
  for (const std::int64_t tokens : flags.tokens.sizes()) {
    counts.emplace_back(static_cast<std::size_t>(placement.num_sources()), tokens);
  }
  return counts;
}

}  // namespace

void MoeFlags::add_to(CLI::App& app) {
  add_sweep_flags(app, tokens, "--tokens", "number of tokens", "1", "4096");
  add_model_flags(app, model);
  add_measure_flags(app, measure);
  add_baseline_flag(app, baseline, {"naive", "allgather", "nccl", "mpi"});
  add_place_flags(app, place, {"local", "tp", "nvlink", "p2p"});
  add_rank_flags(app, ranks);
  add_rank_traffic_flags(app);
  add_output_flags(app, output);
  const auto add = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str()->group("Traffic");
  };
  add("--routing", routing, "uniform, zipf (1/rank), khot (all tokens to the same experts) or one (all to one expert)");
  add("--layout", layout, "packed (grouped by expert) or batched (a fixed capacity per expert)");
  add("--alignment", alignment, "packed: each expert's first row is a multiple of this power of two");
  add("--capacity", capacity, "batched: rows per expert, more are dropped; 0: what the fullest expert gets")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  add("--payload", payload,
      "bf16, fp16, fp32, bytes (opaque rows of one byte per element; combine takes bf16), or what dispatch quantises "
      "bf16 "
      "rows to: fp8, fp8_pow2, mxfp8, mxfp4, nvfp4");
  app.add_flag("--prequantized", prequantized, "rows are in the format of --payload before dispatch gets them")
      ->group("Traffic");
  add("--scale-bytes", scale_bytes, "bytes of quantisation scales that travel with each row")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20));
  add("--weights", weights, "on_combine, on_input or none: who multiplies by the routing weights");
  add("--index", index, "int32 or int64 expert ids");
  add("--max-sms,--sms", max_sms, "most SMs (host: threads) one call may occupy; 0: as many as are useful")
      ->check(CLI::Range(0, 1 << 20));
}

void MoeFlags::add_rank_traffic_flags(CLI::App& app) {
  const auto add = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str()->group("Several ranks");
  };
  add("--tp-size", tp_size, "nvlink, p2p: ranks of a group, which pass the same tokens and all get the result")
      ->check(CLI::Range(1, 1024));
  add("--tokens-per-rank", tokens_per_rank, "one number for each rank, instead of --tokens: 5,0,3K")->type_name("LIST");
  add("--phase", phase, "fused, or split: send and receive are calls of their own, each timed")
      ->check(CLI::IsMember({"fused", "split"}));
  add("--transport", transport,
      "p2p: loopback, verbs or ucx; what puts go over (default: MOELINK_PUT, else the first that works)")
      ->check(CLI::IsMember({"loopback", "verbs", "ucx"}));
  add("--replicas", replicas, "nvlink, p2p: expert e lives in 1 + e mod this many places")->check(CLI::Range(1, 64));
  add("--sum", sum, "tp: automatic, or how combine sums: push, pull, two_shot, nvls (in the switch's order), separate");
  app.add_flag("--fp32-partials", fp32_partials, "tp, nvlink, p2p: a rank's part of a token's sum travels in fp32")
      ->group("Several ranks");
}

MoeSettings::MoeSettings(const MoeFlags& flags, const Communicator& communicator)
    : device(communicator.device()),
      mode(value_of(flags.place.mode, "--mode", kModes)),
      rank(communicator.rank()),
      num_ranks(communicator.size()),
      tp_size(flags.tp_size),
      replicas(flags.replicas),
      fp32_partials(flags.fp32_partials),
      sum(value_of(flags.sum, "--sum", kSums)),
      transport(flags.transport),
      split(flags.phase == "split"),
      routing(routing_of_name(flags.routing)),
      layout(value_of(flags.layout, "--layout", kLayouts)),
      payload(payload_of_name(flags.payload).type),
      quantize(payload_of_name(flags.payload).quantize),
      prequantized(flags.prequantized),
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
  require_payload_of_flags(flags);
  require_mode_of_flags(flags);
  token_counts = token_counts_of(flags, placement(1));
}

void MoeSettings::require_payload_of_flags(const MoeFlags& flags) const {
  if (rows_are_opaque() && weight_mode == WeightMode::on_input) {
    throw UsageError(fmt::format(
        "--weights on_input multiplies rows, which those of --payload {} cannot be; give on_combine", flags.payload));
  }
  if (is_quantized() && scale_bytes != 0) {
    throw UsageError(fmt::format("--payload {} makes its own scales; leave --scale-bytes", flags.payload));
  }
  if (prequantized && !is_quantized()) {
    throw UsageError(
        fmt::format("--prequantized is for a --payload that is quantised, such as fp8, not {}", flags.payload));
  }
  if (is_quantized() && flags.baseline != "none") {
    throw UsageError(fmt::format("--baseline {} does not quantise; leave --payload {}, and compare with a run of bf16",
                                 flags.baseline, flags.payload));
  }
}

void MoeSettings::require_mode_of_flags(const MoeFlags& flags) const {
  if (mode == Mode::local && num_ranks != 1) {
    throw UsageError(
        fmt::format("--mode local is for one rank, and there are {}; give --mode tp, nvlink or p2p", num_ranks));
  }
  if (!is_data_parallel() && (tp_size != 1 || replicas != 1)) {
    throw UsageError(
        fmt::format("--tp-size and --replicas are for --mode nvlink and p2p, not for {}", flags.place.mode));
  }
  if (mode == Mode::local && fp32_partials) {
    throw UsageError("--fp32-partials is for several ranks: the one of --mode local has whole sums");
  }
  if (mode != Mode::p2p && !transport.empty()) {
    throw UsageError(
        fmt::format("--transport {} is what --mode p2p puts over; {} puts nothing", transport, flags.place.mode));
  }
  if (mode != Mode::tensor_parallel && sum != TensorParallelSum::automatic) {
    throw UsageError(fmt::format("--sum {} is how --mode tp sums, not {}", flags.sum, flags.place.mode));
  }
  if (num_ranks % tp_size != 0) {
    throw UsageError(fmt::format("--tp-size: {} ranks cannot be divided into groups of {}", num_ranks, tp_size));
  }
  if (flags.baseline == "naive" && mode != Mode::local) {
    throw UsageError("--baseline naive is for --mode local: plain loops over the tokens of one rank");
  }
  const bool moves_rows = flags.baseline == "allgather" || flags.baseline == "nccl" || flags.baseline == "mpi";
  if (moves_rows && (!is_data_parallel() || tp_size != 1 || replicas != 1)) {
    throw UsageError(
        fmt::format("--baseline {} is for --mode nvlink and p2p, without groups and replicas", flags.baseline));
  }
  if (moves_rows && (capacity != 0 || scale_bytes != 0)) {
    throw UsageError(fmt::format("--baseline {} drops no rows and moves no scales; leave --capacity and --scale-bytes",
                                 flags.baseline));
  }
}

std::string MoeSettings::said_transport() const {
  const char* const variable = std::getenv("MOELINK_PUT");
  return transport.empty() && mode == Mode::p2p && variable != nullptr ? variable : transport;
}

std::string text_of_tokens(const std::vector<std::int64_t>& tokens_of_source) {
  const bool equal = std::ranges::count(tokens_of_source, tokens_of_source.front()) ==
                     static_cast<std::ptrdiff_t>(tokens_of_source.size());
  return equal ? std::to_string(tokens_of_source.front()) : fmt::format("{}", fmt::join(tokens_of_source, ","));
}

}  // namespace moelink::perf
