#include "perf/moe/moe_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "perf/common/host_piece.hpp"
#include "perf/common/random.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;  // host copies of device memory are no larger

std::int64_t row_bytes_of(const MoeSettings& settings, const Model& model) {
  return model.hidden * static_cast<std::int64_t>(size_of(settings.payload));
}

std::int64_t output_row_bytes_of(const MoeSettings& settings, const Model& model) {
  return model.hidden * static_cast<std::int64_t>(size_of(settings.computed()));
}

RowPlan plan_rows(const MoeSettings& settings, const Routing& routing) {
  if (settings.layout == Layout::packed) return plan_packed_rows(routing, settings.alignment);
  const std::int64_t wanted = settings.capacity != 0 ? settings.capacity : fullest_expert(routing);
  return plan_batched_rows(routing, std::max<std::int64_t>(wanted, 1));
}

/// Rows of the buffer: those of the plan, and never none.
std::int64_t capacity_rows(const MoeSettings& settings, const RowPlan& plan) {
  return std::max<std::int64_t>(plan.num_rows(), settings.alignment);
}

ExchangeConfig config_of(const MoeSettings& settings, const Model& model, std::int64_t num_tokens,
                         const RowPlan& plan) {
  const bool packed = settings.layout == Layout::packed;
  const std::int64_t opaque_row_bytes = settings.payload == DataType::bytes ? row_bytes_of(settings, model) : 0;
  return {.num_experts = model.num_experts,
          .top_k = model.top_k,
          .hidden = model.hidden,
          .max_tokens = std::max<std::int64_t>(num_tokens, 1),
          .max_rows = packed ? capacity_rows(settings, plan) : 0,
          .max_rows_per_expert = packed ? 0 : plan.offsets[1],
          .max_alignment = settings.alignment,
          .payloads = {{.type = settings.payload, .row_bytes = opaque_row_bytes, .scale_bytes = settings.scale_bytes}},
          .combine_types = {{.expert_output = settings.computed(), .output = settings.computed()}},
          .weights_on_input = settings.weight_mode == WeightMode::on_input,
          .own_rows = false};
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

MoeSet::MoeSet(const MoeSettings& settings, const Model& model, std::int64_t num_tokens, std::uint64_t seed,
               const Communicator& communicator, StreamView stream, Team& team)
    : stream_(stream),
      routing_(make_routing(settings.routing, num_tokens, model.num_experts, model.top_k, derived_seed(seed, 0))),
      plan_(plan_rows(settings, routing_)),
      case_{.routing = &routing_,
            .plan = &plan_,
            .tokens = {settings.payload, num_tokens, row_bytes_of(settings, model), derived_seed(seed, 1)},
            .scales = {DataType::bytes, num_tokens, settings.scale_bytes, derived_seed(seed, 2)},
            .weight_mode = settings.weight_mode,
            .hidden = model.hidden,
            .expert_output = settings.computed(),
            .output = settings.computed()},
      exchange_(communicator, config_of(settings, model, num_tokens, plan_)),
      index_(settings.index) {
  const Device device = stream.device();
  const std::int64_t num_rows = capacity_rows(settings, plan_);
  const std::int64_t output_row_bytes = output_row_bytes_of(settings, model);
  tokens_ = buffer_of(device, num_tokens * case_.tokens.row_bytes);
  scales_ = buffer_of(device, num_tokens * settings.scale_bytes);
  rows_ = buffer_of(device, num_rows * case_.tokens.row_bytes);
  output_ = buffer_of(device, num_tokens * output_row_bytes);
  upload(case_.tokens, tokens_.data(), stream, team);
  if (settings.scale_bytes != 0) upload(case_.scales, scales_.data(), stream, team);
  upload_routing();

  dispatch_args_ = {.tokens = {tokens_.data(), settings.payload, num_tokens, model.hidden},
                    .expert_ids = {ids_.data(), index_},
                    .weights = weights_.as<float>(),
                    .layout = settings.layout,
                    .alignment = settings.alignment,
                    .weight_mode = settings.weight_mode,
                    .rows = {rows_.data(), settings.payload, num_rows, model.hidden},
                    .max_sms = settings.max_sms};
  if (settings.scale_bytes != 0) {
    dispatch_args_.scales = {scales_.data(), DataType::bytes, num_tokens, settings.scale_bytes};
  }
  combine_args_ = {.expert_output = dispatch_args_.rows,
                   .output = {output_.data(), settings.computed(), num_tokens, model.hidden},
                   .max_sms = settings.max_sms};
  if (settings.payload == DataType::bytes) {
    expert_output_ = buffer_of(device, num_rows * output_row_bytes);
    combine_args_.expert_output = {expert_output_.data(), settings.computed(), num_rows, model.hidden};
    upload({settings.computed(), num_rows, output_row_bytes, derived_seed(seed, 3)}, expert_output_.data(), stream,
           team);
  }
  poison();
}

void MoeSet::upload_routing() {
  const std::size_t entries = routing_.expert_ids.size();
  ids_ = buffer_of(stream_.device(), static_cast<std::int64_t>(entries * size_of(index_)));
  weights_ = buffer_of(stream_.device(), static_cast<std::int64_t>(entries * sizeof(float)));
  const std::vector<std::int32_t> narrow(routing_.expert_ids.begin(), routing_.expert_ids.end());
  const void* ids = index_ == IndexType::int32 ? static_cast<const void*>(narrow.data()) : routing_.expert_ids.data();
  if (entries != 0) {
    copy_bytes(ids_.data(), ids, entries * size_of(index_), stream_);
    copy_bytes(weights_.data(), routing_.weights.data(), entries * sizeof(float), stream_);
  }
  stream_.synchronize();
}

void MoeSet::poison() {
  fill_bytes(rows_.data(), 0xFF, rows_.size_bytes(), stream_);
  fill_bytes(output_.data(), 0xFF, output_.size_bytes(), stream_);
  stream_.synchronize();
  errors_before_ = exchange_.data_errors();
}

void MoeSet::check_metadata(Mismatches& mismatches) const {
  const auto always = [](std::int64_t) { return true; };
  const auto entry_of = [this](std::int64_t row) { return plan_.entry_of_row[static_cast<std::size_t>(row)]; };
  const auto not_pad = [&](std::int64_t row) { return entry_of(row) >= 0; };
  const auto at = [](const auto& values) {
    return [&values](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  };
  const auto weight = [&](std::int64_t row) {
    return case_.weight_mode == WeightMode::none ? 1.0F : routing_.weights[static_cast<std::size_t>(entry_of(row))];
  };
  const std::int64_t experts = routing_.num_experts;
  compare("offsets", experts + 1, batch_.offsets, stream_, mismatches, at(plan_.offsets), always);
  compare("counts", experts, batch_.counts, stream_, mismatches, at(plan_.counts), always);
  compare("expert_of_row", plan_.num_rows(), batch_.expert_of_row, stream_, mismatches, at(plan_.expert_of_row),
          always);
  compare("weight_of_row", plan_.num_rows(), batch_.weight_of_row, stream_, mismatches, weight, not_pad);
  compare("source_of_row", plan_.num_rows(), batch_.source_of_row, stream_, mismatches, entry_of, not_pad);
}

void MoeSet::check_dispatch(Team& team, Mismatches& mismatches) {
  check_metadata(mismatches);
  const std::int64_t row_bytes = case_.tokens.row_bytes;
  in_pieces(plan_.num_rows(), row_bytes, [&](std::int64_t first, std::int64_t count) {
    HostPiece rows(rows_.as<std::byte>() + first * row_bytes, count * row_bytes, stream_);
    check_rows(case_, first, count, rows.data(), team, mismatches);
  });
  if (case_.scales.row_bytes == 0) return;
  HostPiece scales(batch_.scales.data, plan_.num_rows() * case_.scales.row_bytes, stream_);
  check_scales(case_, 0, plan_.num_rows(), scales.data(), team, mismatches);
}

void MoeSet::run_experts(Team& team) {
  const std::int64_t row_bytes = case_.tokens.row_bytes;
  const std::int64_t output_row_bytes = combine_args_.expert_output.row_bytes();
  auto* output = static_cast<std::byte*>(expert_output().data);
  in_pieces(plan_.num_rows(), std::max(row_bytes, output_row_bytes), [&](std::int64_t first, std::int64_t count) {
    HostPiece in(rows_.as<std::byte>() + first * row_bytes, count * row_bytes, stream_);
    HostPiece out(output + first * output_row_bytes, count * output_row_bytes, stream_);
    apply_experts(case_, first, count, in.data(), out.data(), team);
    out.write_back();
  });
}

void MoeSet::check_combine(Team& team, Mismatches& mismatches) {
  const std::int64_t row_bytes = combine_args_.output.row_bytes();
  in_pieces(routing_.num_tokens, row_bytes, [&](std::int64_t first, std::int64_t count) {
    HostPiece output(output_.as<std::byte>() + first * row_bytes, count * row_bytes, stream_);
    check_output(case_, first, count, output.data(), team, mismatches);
  });
  const DataErrors now = exchange_.data_errors();
  const std::int64_t over_capacity = now.rows_over_capacity - errors_before_.rows_over_capacity;
  const std::int64_t out_of_range = now.ids_out_of_range - errors_before_.ids_out_of_range;
  mismatches.add(over_capacity != plan_.over_capacity || out_of_range != plan_.out_of_range ? 1 : 0, [&] {
    return fmt::format("data errors counted: {} rows over capacity instead of {}, {} ids out of range instead of {}",
                       over_capacity, plan_.over_capacity, out_of_range, plan_.out_of_range);
  });
}

MoeTraffic MoeSet::traffic() const {
  const std::int64_t in_bytes = case_.tokens.row_bytes + case_.scales.row_bytes;
  const std::int64_t out_bytes = combine_args_.output.row_bytes();
  return {.dispatch_logical = plan_.kept * in_bytes,
          .dispatch_moved = (routing_.num_tokens + plan_.kept) * in_bytes,
          .combine_logical = plan_.kept * combine_args_.expert_output.row_bytes(),
          .combine_moved = plan_.kept * combine_args_.expert_output.row_bytes() + routing_.num_tokens * out_bytes};
}

std::int64_t MoeSet::estimate_bytes(const MoeSettings& settings, const Model& model, std::int64_t num_tokens) {
  const std::int64_t in_bytes = row_bytes_of(settings, model);
  const std::int64_t out_bytes = output_row_bytes_of(settings, model);
  const std::int64_t rows = num_tokens * model.top_k;
  return num_tokens * (in_bytes + out_bytes) +
         rows * (in_bytes + (settings.payload == DataType::bytes ? out_bytes : 0));
}

}  // namespace moelink::perf
