#include "perf/moe/moe_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "moelink/error.hpp"
#include "perf/common/host_piece.hpp"
#include "perf/common/random.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;  // host copies of device memory are no larger

constexpr float kTensorScale = 0.001F;  // of nvfp4: largest magnitudes of 2 come to 333 of the 448 that a scale can be

BlockFormat format_of(const MoeSettings& settings) {
  return {.name = settings.quantize, .tensor_scale = settings.quantize == Quantization::nvfp4 ? kTensorScale : 1};
}

/// Of one token before it is quantised.
std::int64_t unquantized_row_bytes_of(const MoeSettings& settings, const Model& model) {
  return model.hidden * static_cast<std::int64_t>(size_of(settings.payload));
}

/// As it travels.
std::int64_t row_bytes_of(const MoeSettings& settings, const Model& model) {
  return settings.is_quantized() ? format_of(settings).row_bytes(model.hidden)
                                 : unquantized_row_bytes_of(settings, model);
}
std::int64_t scale_bytes_of(const MoeSettings& settings, const Model& model) {
  return settings.is_quantized() ? format_of(settings).scale_bytes(model.hidden) : settings.scale_bytes;
}

/// What a call passes for one token, scales included.
std::int64_t input_bytes_of(const MoeSettings& settings, const Model& model) {
  return settings.is_quantized() && !settings.prequantized
             ? unquantized_row_bytes_of(settings, model)
             : row_bytes_of(settings, model) + scale_bytes_of(settings, model);
}

/// Of a Payload, and of the tokens' view.
DataType input_type_of(const MoeSettings& settings) {
  return settings.prequantized ? DataType::bytes : settings.payload;
}
Payload payload_of(const MoeSettings& settings, const Model& model) {
  const DataType type = input_type_of(settings);
  if (settings.is_quantized() && !settings.prequantized) return {.type = type, .quantize = settings.quantize};
  return {.type = type,
          .row_bytes = type == DataType::bytes ? row_bytes_of(settings, model) : 0,
          .scale_bytes = scale_bytes_of(settings, model)};
}

std::int64_t output_row_bytes_of(const MoeSettings& settings, const Model& model) {
  return model.hidden * static_cast<std::int64_t>(size_of(settings.computed()));
}

std::int64_t most_tokens(const std::vector<std::int64_t>& tokens_of_source) {
  return std::max<std::int64_t>(std::ranges::max(tokens_of_source), 1);
}

std::int64_t all_tokens(const std::vector<std::int64_t>& tokens_of_source) {
  return std::accumulate(tokens_of_source.begin(), tokens_of_source.end(), std::int64_t{0});
}

/// Rows of a rank if all experts are equally busy, at least one.
std::int64_t even_rows(const MoeSettings& settings, const Model& model,
                       const std::vector<std::int64_t>& tokens_of_source) {
  return std::max<std::int64_t>(all_tokens(tokens_of_source) * model.top_k / settings.num_ranks, 1);
}

Sources make_sources(const MoeSettings& settings, const Model& model, const std::vector<std::int64_t>& tokens_of_source,
                     std::uint64_t seed) {
  std::vector<Routing> routings;
  for (const std::int64_t num_tokens : tokens_of_source) {
    const std::uint64_t own_seed = derived_seed(seed, 16 + routings.size());
    routings.push_back(make_routing(settings.routing, num_tokens, model.num_experts, model.top_k, own_seed));
  }
  return Sources(std::move(routings));
}

/// One matrix for each source, of seeds of their own.
std::vector<RandomMatrix> matrices(DataType type, const std::vector<std::int64_t>& tokens_of_source,
                                   std::int64_t row_bytes, std::uint64_t seed, bool varied) {
  std::vector<RandomMatrix> of_source;
  for (const std::int64_t num_tokens : tokens_of_source) {
    of_source.push_back({type, num_tokens, row_bytes, derived_seed(seed, of_source.size()), varied});
  }
  return of_source;
}

/// Room for everything on the fullest rank; batched, as the flags say or for everything. Never none.
std::int64_t capacity_of(const MoeSettings& settings, const Sources& sources, const Placement& placement) {
  if (settings.layout == Layout::packed) {
    return std::max<std::int64_t>(most_packed_rows(sources, placement, settings.alignment), settings.alignment);
  }
  return std::max<std::int64_t>(settings.capacity != 0 ? settings.capacity : fullest_expert(sources, placement), 1);
}

RowPlan plan_rows(const MoeSettings& settings, const Sources& sources, const Placement& placement,
                  std::int64_t capacity) {
  return settings.layout == Layout::packed ? plan_packed_rows(sources, placement, settings.rank, settings.alignment)
                                           : plan_batched_rows(sources, placement, settings.rank, capacity);
}

/// Of this rank's rows buffer, never none.
std::int64_t buffer_rows(const MoeSettings& settings, const Placement& placement, std::int64_t capacity) {
  if (settings.layout == Layout::packed) return capacity;
  return std::max<std::int64_t>(placement.num_experts_of(settings.rank), 1) * capacity;
}

ExchangeConfig config_of(const MoeSettings& settings, const Model& model, const Placement& placement,
                         std::int64_t max_tokens, std::int64_t capacity) {
  const bool packed = settings.layout == Layout::packed;
  return {.mode = settings.mode,
          .replicated_inputs = settings.mode == Mode::tensor_parallel,
          .tp_size = settings.tp_size,
          .tensor_parallel_sum = settings.sum,
          .deterministic = settings.sum != TensorParallelSum::nvls,
          .fp32_partials = settings.fp32_partials,
          .num_physical_experts = settings.replicas == 1 ? 0 : placement.num_experts,
          .max_replicas = settings.replicas,
          .num_experts = model.num_experts,
          .top_k = model.top_k,
          .hidden = model.hidden,
          .max_tokens = max_tokens,
          .max_rows = packed ? capacity : 0,
          .max_rows_per_expert = packed ? 0 : capacity,
          .max_alignment = settings.alignment,
          .payloads = {payload_of(settings, model)},
          .combine_types = {{.expert_output = settings.computed(), .output = settings.computed()}},
          .weights_on_input = settings.weight_mode == WeightMode::on_input,
          .own_rows = false,
          .transport = settings.transport};
}

RowBytes row_bytes_of_call(const MoeSettings& settings, const Model& model) {
  const std::int64_t computed = output_row_bytes_of(settings, model);
  return {.input = input_bytes_of(settings, model),
          .token = row_bytes_of(settings, model) + scale_bytes_of(settings, model),
          .expert_output = computed,
          .part = settings.rounds_parts() ? computed : model.hidden * std::int64_t{4},
          .output = computed};
}

Buffer buffer_of(Device device, std::int64_t size_bytes) {
  return {device, static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 256))};
}

/// Calls `visit(first, count)` over pieces of `rows` rows whose copies stay small.
void in_pieces(std::int64_t rows, std::int64_t row_bytes,
               const std::function<void(std::int64_t first, std::int64_t count)>& visit) {
  const std::int64_t at_once = std::max<std::int64_t>(kPieceBytes / row_bytes, 1);
  for (std::int64_t first = 0; first < rows; first += at_once) {
    visit(first, std::min(at_once, rows - first));
  }
}

/// Compares one array of metadata where `relevant(i)`.
template <class T, class Expected, class Relevant>
void compare(const char* what, std::int64_t count, const T* device_data, StreamView stream, Mismatches& mismatches,
             Expected&& expected, Relevant&& relevant) {
  HostPiece piece(device_data, count * static_cast<std::int64_t>(sizeof(T)), stream);
  const auto seen = piece.as<T>();
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = seen[static_cast<std::size_t>(i)];
    if (!relevant(i) || value == static_cast<T>(expected(i))) continue;
    mismatches.add(1, [&] { return fmt::format("{}[{}] is {} instead of {}", what, i, value, expected(i)); });
  }
}

}  // namespace

MoeSet::MoeSet(const MoeSettings& settings, const Model& model, const std::vector<std::int64_t>& tokens_of_source,
               std::uint64_t seed, const Communicator& communicator, StreamView stream, Team& team)
    : stream_(stream),
      placement_(settings.placement(model.num_experts)),
      sources_(make_sources(settings, model, tokens_of_source, seed)),
      capacity_(capacity_of(settings, sources_, placement_)),
      plan_(plan_rows(settings, sources_, placement_, capacity_)),
      case_{.sources = &sources_,
            .placement = &placement_,
            .plan = &plan_,
            .tokens = matrices(settings.payload, tokens_of_source, unquantized_row_bytes_of(settings, model),
                               derived_seed(seed, 1), settings.is_quantized()),
            .scales = matrices(DataType::bytes, tokens_of_source, settings.scale_bytes, derived_seed(seed, 2), false),
            .format = format_of(settings),
            .weight_mode = settings.weight_mode,
            .hidden = model.hidden,
            .expert_output = settings.computed(),
            .output = settings.computed(),
            .rounded_parts = settings.rounds_parts()},
      traffic_(traffic_of(settings.mode, sources_, placement_,
                          settings.layout == Layout::packed ? sources_.num_entries() : capacity_,
                          row_bytes_of_call(settings, model))),
      exchange_(communicator, config_of(settings, model, placement_, most_tokens(tokens_of_source), capacity_)),
      index_(settings.index) {
  const Device device = stream.device();
  const std::int64_t num_tokens = case_.routing().num_tokens;
  const std::int64_t num_rows = buffer_rows(settings, placement_, capacity_);
  const std::int64_t output_row_bytes = output_row_bytes_of(settings, model);
  const DataType input_type = input_type_of(settings);
  const std::int64_t row_columns = settings.rows_are_opaque() ? case_.row_bytes() : model.hidden;
  rows_ = buffer_of(device, num_rows * case_.row_bytes());
  output_ = buffer_of(device, num_tokens * output_row_bytes);
  upload_tokens(settings, team);
  upload_routing();

  dispatch_args_ = {
      .tokens = {tokens_.data(), input_type, num_tokens, input_type == DataType::bytes ? row_columns : model.hidden},
      .expert_ids = {ids_.data(), index_},
      .weights = weights_.as<float>(),
      .layout = settings.layout,
      .alignment = settings.alignment,
      .weight_mode = settings.weight_mode,
      .rows = {rows_.data(), case_.row_type(), num_rows, row_columns},
      .expert_map = placement_.expert_map.empty() ? nullptr : expert_map_.as<std::int32_t>(),
      .max_sms = settings.max_sms,
      .quantize = settings.prequantized ? Quantization::none : settings.quantize,
      .tensor_scale = tensor_scale_.as<float>()};
  if (scales_.size_bytes() != 0) {
    dispatch_args_.scales = {scales_.data(), DataType::bytes, num_tokens, case_.scale_bytes()};
  }
  combine_args_ = {.expert_output = dispatch_args_.rows,
                   .output = {output_.data(), settings.computed(), num_tokens, model.hidden},
                   .max_sms = settings.max_sms};
  if (settings.rows_are_opaque()) {
    expert_output_ = buffer_of(device, num_rows * output_row_bytes);
    combine_args_.expert_output = {expert_output_.data(), settings.computed(), num_rows, model.hidden};
    upload({settings.computed(), num_rows, output_row_bytes, derived_seed(seed, 3)}, expert_output_.data(), stream,
           team);
  }
  poison();
}

/// Tokens as the caller of dispatch has them, and the scales that come with them.
void MoeSet::upload_tokens(const MoeSettings& settings, Team& team) {
  const Device device = stream_.device();
  const std::int64_t num_tokens = case_.own_tokens().rows;
  if (settings.is_quantized()) {
    tensor_scale_ = buffer_of(device, sizeof(float));
    copy_bytes(tensor_scale_.data(), &case_.format.tensor_scale, sizeof(float), stream_);
    stream_.synchronize();
  }
  if (settings.is_quantized() && !settings.prequantized) {
    tokens_ = buffer_of(device, num_tokens * case_.own_tokens().row_bytes);
    upload(case_.own_tokens(), tokens_.data(), stream_, team);
    return;
  }
  tokens_ = buffer_of(device, num_tokens * case_.row_bytes());
  const auto row = [&](std::int64_t token, std::byte* to) { case_.make_row(case_.source(), token, to); };
  upload_rows(num_tokens, case_.row_bytes(), row, tokens_.data(), stream_, team);
  if (case_.scale_bytes() == 0) return;
  scales_ = buffer_of(device, num_tokens * case_.scale_bytes());
  const auto scales = [&](std::int64_t token, std::byte* to) { case_.make_scales(case_.source(), token, to); };
  upload_rows(num_tokens, case_.scale_bytes(), scales, scales_.data(), stream_, team);
}

void MoeSet::upload_routing() {
  const Routing& routing = case_.routing();
  const std::size_t entries = routing.expert_ids.size();
  ids_ = buffer_of(stream_.device(), static_cast<std::int64_t>(entries * size_of(index_)));
  weights_ = buffer_of(stream_.device(), static_cast<std::int64_t>(entries * sizeof(float)));
  const std::vector<std::int32_t> narrow(routing.expert_ids.begin(), routing.expert_ids.end());
  const void* ids = index_ == IndexType::int32 ? static_cast<const void*>(narrow.data()) : routing.expert_ids.data();
  if (entries != 0) {
    copy_bytes(ids_.data(), ids, entries * size_of(index_), stream_);
    copy_bytes(weights_.data(), routing.weights.data(), entries * sizeof(float), stream_);
  }
  const std::size_t map_bytes = placement_.expert_map.size() * sizeof(std::int32_t);
  if (map_bytes != 0) {
    expert_map_ = buffer_of(stream_.device(), static_cast<std::int64_t>(map_bytes));
    copy_bytes(expert_map_.data(), placement_.expert_map.data(), map_bytes, stream_);
  }
  stream_.synchronize();
}

void MoeSet::poison() {
  fill_bytes(rows_.data(), 0xFF, rows_.size_bytes(), stream_);
  fill_bytes(output_.data(), 0xFF, output_.size_bytes(), stream_);
  stream_.synchronize();
  errors_before_ = exchange_.data_errors();
}

/// What ExpertBatch::source_of_row says: the members of a group pass the same tokens, its first rank stands for all.
std::int64_t MoeSet::source_word(std::int64_t entry) const {
  const Sources::Entry from = sources_.locate(entry);
  const std::int64_t first_rank = std::int64_t{from.source} * placement_.ranks_per_source;
  return first_rank * exchange_.config().max_tokens * sources_.top_k() + from.entry;
}

void MoeSet::check_metadata(Mismatches& mismatches) const {
  const auto always = [](std::int64_t) { return true; };
  const auto entry_of = [this](std::int64_t row) { return plan_.entry_of_row[static_cast<std::size_t>(row)]; };
  const auto not_pad = [&](std::int64_t row) { return entry_of(row) >= 0; };
  const auto at = [](const auto& values) {
    return [&values](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  };
  const auto weight = [&](std::int64_t row) {
    const Sources::Entry from = sources_.locate(entry_of(row));
    return case_.weight_mode == WeightMode::none ? 1.0F
                                                 : sources_[from.source].weights[static_cast<std::size_t>(from.entry)];
  };
  const auto source = [&](std::int64_t row) { return source_word(entry_of(row)); };
  const std::int64_t experts = placement_.num_experts_of(plan_.rank);
  mismatches.add(batch_.num_local_experts == experts ? 0 : 1,
                 [&] { return fmt::format("{} local experts instead of {}", batch_.num_local_experts, experts); });
  if (batch_.num_local_experts != experts) return;
  compare("offsets", experts + 1, batch_.offsets, stream_, mismatches, at(plan_.offsets), always);
  compare("counts", experts, batch_.counts, stream_, mismatches, at(plan_.counts), always);
  compare("expert_of_row", plan_.num_rows(), batch_.expert_of_row, stream_, mismatches, at(plan_.expert_of_row),
          always);
  compare("weight_of_row", plan_.num_rows(), batch_.weight_of_row, stream_, mismatches, weight, not_pad);
  compare("source_of_row", plan_.num_rows(), batch_.source_of_row, stream_, mismatches, source, not_pad);
}

void MoeSet::check_rows(Team& team, Mismatches& mismatches) {
  const std::int64_t row_bytes = case_.row_bytes();
  in_pieces(plan_.num_rows(), row_bytes, [&](std::int64_t first, std::int64_t count) {
    HostPiece rows(rows_.as<std::byte>() + first * row_bytes, count * row_bytes, stream_);
    perf::check_rows(case_, first, count, rows.data(), team, mismatches);
  });
}

void MoeSet::check_dispatch(Team& team, Mismatches& mismatches) {
  check_metadata(mismatches);
  check_rows(team, mismatches);
  const std::int64_t scale_bytes = case_.scale_bytes();
  if (scale_bytes == 0) return;
  HostPiece scales(batch_.scales.data, plan_.num_rows() * scale_bytes, stream_);
  check_scales(case_, 0, plan_.num_rows(), scales.data(), team, mismatches);
}

void MoeSet::run_experts(Team& team) {
  const std::int64_t row_bytes = case_.row_bytes();
  const std::int64_t scale_bytes = case_.is_quantized() ? case_.scale_bytes() : 0;
  const std::int64_t output_row_bytes = combine_args_.expert_output.row_bytes();
  auto* output = static_cast<std::byte*>(expert_output().data);
  in_pieces(plan_.num_rows(), std::max(row_bytes, output_row_bytes), [&](std::int64_t first, std::int64_t count) {
    HostPiece in(rows_.as<std::byte>() + first * row_bytes, count * row_bytes, stream_);
    HostPiece scales(static_cast<std::byte*>(batch_.scales.data) + first * scale_bytes, count * scale_bytes, stream_);
    HostPiece out(output + first * output_row_bytes, count * output_row_bytes, stream_);
    apply_experts(case_, first, count, in.data(), scales.data(), out.data(), team);
    out.write_back();
  });
}

void MoeSet::check_combine(Team& team, Mismatches& mismatches, RelativeError& error) {
  const std::int64_t row_bytes = combine_args_.output.row_bytes();
  in_pieces(case_.routing().num_tokens, row_bytes, [&](std::int64_t first, std::int64_t count) {
    HostPiece output(output_.as<std::byte>() + first * row_bytes, count * row_bytes, stream_);
    check_output(case_, first, count, output.data(), team, mismatches, case_.is_quantized() ? &error : nullptr);
  });
  check_data_errors(mismatches);
}

void MoeSet::check_data_errors(Mismatches& mismatches) {
  const DataErrors now = exchange_.data_errors();
  const auto compare_count = [&](const char* what, std::int64_t DataErrors::*counter, std::int64_t expected) {
    const std::int64_t seen = now.*counter - errors_before_.*counter;
    mismatches.add(seen == expected ? 0 : 1, [&] { return fmt::format("{} {} instead of {}", seen, what, expected); });
  };
  compare_count("rows over capacity counted", &DataErrors::rows_over_capacity, plan_.over_capacity);
  compare_count("entries dropped by peers counted", &DataErrors::entries_dropped_by_peers, plan_.dropped_by_peers);
  compare_count("ids out of range counted", &DataErrors::ids_out_of_range, plan_.out_of_range);
  compare_count("clamped token counts", &DataErrors::token_counts_clamped, 0);
  compare_count("clamped counts of peers", &DataErrors::peer_counts_clamped, 0);
  try {
    exchange_.check();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::data) throw;  // data errors were compared above
  }
}

std::int64_t MoeSet::call_bytes(const MoeSettings& settings, const Model& model,
                                const std::vector<std::int64_t>& tokens_of_source) {
  const std::int64_t out_bytes = output_row_bytes_of(settings, model);
  const std::int64_t rows = even_rows(settings, model, tokens_of_source);
  return most_tokens(tokens_of_source) * (input_bytes_of(settings, model) + out_bytes) +
         rows * (row_bytes_of(settings, model) + (settings.rows_are_opaque() ? out_bytes : 0));
}

std::int64_t MoeSet::set_bytes(const MoeSettings& settings, const Model& model,
                               const std::vector<std::int64_t>& tokens_of_source, const Communicator& communicator) {
  const std::int64_t rows = even_rows(settings, model, tokens_of_source);
  const bool packed = settings.layout == Layout::packed;
  const std::int64_t per_expert = settings.capacity != 0
                                      ? settings.capacity
                                      : rows * settings.num_ranks / settings.placement(model.num_experts).num_experts;
  const std::int64_t capacity =
      packed ? (rows + settings.alignment) / settings.alignment * settings.alignment : per_expert + 1;
  const ExchangeConfig config =
      config_of(settings, model, settings.placement(model.num_experts), most_tokens(tokens_of_source), capacity);
  // Ids, weights and places of all ranks' entries, which the reference keeps on the host.
  constexpr std::int64_t kHostBytesPerEntry = 32;
  const std::int64_t entries = all_tokens(tokens_of_source) * model.top_k;
  return call_bytes(settings, model, tokens_of_source) + Exchange::memory(communicator, config).total_bytes() +
         (settings.device.is_host() ? entries * kHostBytesPerEntry : 0);
}

}  // namespace moelink::perf
