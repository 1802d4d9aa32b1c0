#include "exchange/exchange_impl.hpp"

#include <chrono>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

std::shared_ptr<Workspace::State> fitting_workspace(Device device, const DeviceLayout& layout,
                                                    std::shared_ptr<Workspace::State> shared) {
  if (shared == nullptr) return std::make_shared<Workspace::State>(device, layout.total_bytes, layout.metadata_bytes);
  if (shared->memory().device() != device) {
    throw Error(ErrorCode::invalid_argument, text("the workspace is on ", shared->memory().device().name(),
                                                  ", the communicator on ", device.name(), "; use the same device"));
  }
  if (static_cast<i64>(shared->memory().size_bytes()) < layout.total_bytes) {
    throw Error(ErrorCode::capacity,
                text("the workspace has ", shared->memory().size_bytes(), " bytes, this configuration needs ",
                     layout.total_bytes, "; name it among the configurations the workspace is made for"));
  }
  return shared;
}

}  // namespace

Exchange::Impl::Impl(const Communicator& communicator, const ExchangeConfig& config,
                     std::shared_ptr<Workspace::State> workspace)
    : communicator_(communicator),
      config_(config),
      shape_(check_config(config, communicator)),
      device_(communicator.device()),
      local_device_(local_device(device_)),
      layout_(lay_out_memory(shape_, config_, local_device_)),
      workspace_(fitting_workspace(device_, layout_.device, std::move(workspace))),
      host_memory_(device_, static_cast<std::size_t>(layout_.host.total_bytes)),
      status_(layout_.host.status.in(host_memory_.data()), layout_.host.fault.in(host_memory_.data())),
      check_pointer_(device_),
      kernels_(LocalKernels::loaded(device_, local_device_, shape_, config_)) {}

Exchange::Impl::~Impl() {
  if (workspace_->in_flight == this) workspace_->in_flight = nullptr;
  if (workspace_->last_routed == this) workspace_->last_routed = nullptr;
}

ExpertBatch Exchange::Impl::dispatch(const DispatchArgs& args, StreamView stream) {
  check_stream(stream, device_);
  check_dispatch_is_next(args.reuse_routing);
  const DispatchChoice choice = check_dispatch(args, config_, shape_, routing_);
  check_pointers(args);

  const MutableMatrixView rows = rows_of_call(args, choice);
  const MutableMatrixView scales = scales_of_call(choice);
  check_apart_from_rows(args, rows, scales, config_);
  kernels_.dispatch({.num_tokens = args.tokens.rows,
                     .payload = choice.payload,
                     .reuse_routing = args.reuse_routing,
                     .weighted = choice.routing.weight_mode == WeightMode::on_input,
                     .max_sms = args.max_sms},
                    dispatch_args(args, choice.routing, rows, scales), stream);

  routing_ = choice.routing;
  workspace_->in_flight = this;
  workspace_->last_routed = this;
  return batch(routing_, rows, scales);
}

void Exchange::Impl::combine(const CombineArgs& args, StreamView stream) {
  check_stream(stream, device_);
  check_combine_is_next();
  const std::size_t types = check_combine(args, config_, shape_, routing_);
  check_output_apart(args, workspace_->memory().data(), layout_.device.metadata_bytes);
  check_pointer_("CombineArgs::expert_output", args.expert_output.data);
  check_pointer_("CombineArgs::output", args.output.data);
  kernels_.combine({.num_tokens = routing_.num_tokens, .types = types, .max_sms = args.max_sms}, combine_args(args),
                   stream);
  workspace_->in_flight = nullptr;
}

void Exchange::Impl::check_dispatch_is_next(bool reuse_routing) const {
  status_.throw_fault();
  if (workspace_->in_flight == this) {
    throw Error(ErrorCode::out_of_order,
                "dispatch was called twice; combine must answer the first. Batches that overlap need an Exchange each");
  }
  if (workspace_->in_flight != nullptr) {
    throw Error(ErrorCode::out_of_order,
                "another Exchange that shares this workspace is between dispatch and combine; Exchanges that are in "
                "flight together need a workspace each");
  }
  if (reuse_routing && workspace_->last_routed != this) {
    throw Error(ErrorCode::out_of_order,
                workspace_->last_routed == nullptr
                    ? "DispatchArgs::reuse_routing is set, but there was no dispatch to reuse; route first"
                    : "DispatchArgs::reuse_routing is set, but another Exchange that shares this workspace has routed "
                      "since; route anew");
  }
}

void Exchange::Impl::check_combine_is_next() const {
  status_.throw_fault();
  if (workspace_->in_flight != this) {
    throw Error(ErrorCode::out_of_order, "combine was called without a dispatch to answer; dispatch first");
  }
}

void Exchange::Impl::check_pointers(const DispatchArgs& args) {
  check_pointer_("DispatchArgs::tokens", args.tokens.data);
  check_pointer_("DispatchArgs::scales", args.scales.data);
  check_pointer_("DispatchArgs::rows", args.rows.data);
  if (args.reuse_routing) return;
  check_pointer_("DispatchArgs::expert_ids", args.expert_ids.data);
  check_pointer_("DispatchArgs::weights", args.weights);
  check_pointer_("DispatchArgs::num_tokens", args.num_tokens);
}

MutableMatrixView Exchange::Impl::rows_of_call(const DispatchArgs& args, const DispatchChoice& choice) const {
  MutableMatrixView rows{.data = at(layout_.device.rows), .type = args.tokens.type, .columns = args.tokens.columns};
  if (args.rows.data != nullptr) rows = args.rows;
  rows.rows = moelink::rows_of(choice.routing, shape_.num_local_experts);
  rows.row_stride_bytes = rows.stride_bytes();
  return rows;
}

MutableMatrixView Exchange::Impl::scales_of_call(const DispatchChoice& choice) const {
  const i64 scale_bytes = config_.payloads[choice.payload].scale_bytes;
  if (scale_bytes == 0) return {.type = DataType::bytes};
  return {.data = at(layout_.device.row_scales),
          .type = DataType::bytes,
          .rows = moelink::rows_of(choice.routing, shape_.num_local_experts),
          .columns = scale_bytes,
          .row_stride_bytes = scale_bytes};
}

LocalDispatchArgs Exchange::Impl::dispatch_args(const DispatchArgs& args, const RoutingState& routing,
                                                const MutableMatrixView& rows, const MutableMatrixView& scales) const {
  const DeviceLayout& d = layout_.device;
  return {.tokens = args.tokens.data,
          .token_stride_bytes = args.tokens.stride_bytes(),
          .scales = args.scales.data,
          .scale_stride_bytes = args.scales.stride_bytes(),
          .expert_ids = args.expert_ids.data,
          .id_bytes = static_cast<i32>(size_of(args.expert_ids.type)),
          .weights = routing.weight_mode == WeightMode::none ? nullptr : args.weights,
          .device_num_tokens = args.num_tokens,
          .num_tokens = static_cast<i32>(args.tokens.rows),
          .parts = 1,       // the plan's to say
          .ring_bytes = 0,  // the plan's to say
          .every_block_counts = 0,
          .layout = routing.layout == Layout::packed ? RowLayout::packed : RowLayout::batched,
          .alignment = routing.alignment,
          .zero_pads = args.zero_pads ? 1 : 0,
          .max_rows = routing.capacity,
          .rows = rows.data,
          .row_stride_bytes = rows.stride_bytes(),
          .row_scales = scales.data,
          .offsets = at(d.offsets),
          .counts = at(d.counts),
          .expert_of_row = at(d.expert_of_row),
          .weight_of_row = at(d.weight_of_row),
          .source_of_row = at(d.source_of_row),
          .row_of_entry = at(d.row_of_entry),
          .weight_of_entry = at(d.weight_of_entry),
          .num_tokens_snapshot = at(d.num_tokens_snapshot),
          .grid_barrier = at(d.grid_barrier),
          .block_counts = at(d.block_counts),
          .phase = at(d.phase),
          .status = layout_.host.status.in(host_memory_.data()),
          .fault = {.word = at(d.fault),
                    .record = layout_.host.fault.in(host_memory_.data()),
                    .rank = communicator_.rank(),
                    .timeout_ns = static_cast<u64>(std::chrono::nanoseconds(communicator_.deadline()).count())}};
}

LocalCombineArgs Exchange::Impl::combine_args(const CombineArgs& args) const {
  const DeviceLayout& d = layout_.device;
  return {.expert_output = args.expert_output.data,
          .expert_output_stride_bytes = args.expert_output.stride_bytes(),
          .expert_output_rows = args.expert_output.rows,
          .output = args.output.data,
          .output_stride_bytes = args.output.stride_bytes(),
          .accumulate = args.accumulate ? 1 : 0,
          .weighted = routing_.weight_mode == WeightMode::on_combine ? 1 : 0,
          .num_tokens = static_cast<i32>(routing_.num_tokens),
          .parts = 1,  // the plan's to say
          .num_tokens_snapshot = at(d.num_tokens_snapshot),
          .row_of_entry = at(d.row_of_entry),
          .weight_of_entry = at(d.weight_of_entry),
          .phase = at(d.phase),
          .status = layout_.host.status.in(host_memory_.data())};
}

ExpertBatch Exchange::Impl::batch(const RoutingState& routing, const MutableMatrixView& rows,
                                  const MutableMatrixView& scales) const {
  const DeviceLayout& d = layout_.device;
  return {.rows = rows,
          .scales = scales,
          .offsets = at(d.offsets),
          .counts = at(d.counts),
          .expert_of_row = at(d.expert_of_row),
          .weight_of_row = at(d.weight_of_row),
          .source_of_row = at(d.source_of_row),
          .num_local_experts = shape_.num_local_experts,
          .capacity = routing.capacity,
          .layout = routing.layout};
}

MutableMatrixView Exchange::Impl::expert_output_buffer(DataType type) const {
  if (!config_.own_expert_output) {
    throw Error(ErrorCode::invalid_argument,
                "there is no expert_output_buffer(): set ExchangeConfig::own_expert_output at construction");
  }
  for (const CombineTypes& types : config_.combine_types) {
    if (types.expert_output == type) {
      return {.data = at(layout_.device.expert_output),
              .type = type,
              .rows = shape_.row_capacity,
              .columns = shape_.hidden,
              .row_stride_bytes = 0};
    }
  }
  throw Error(ErrorCode::invalid_argument, text("expert_output_buffer of ", name_of(type),
                                                ": no ExchangeConfig::combine_types reads it; declare it there"));
}

std::span<const std::int32_t> Exchange::Impl::host_counts(StreamView stream) {
  check_stream(stream, device_);
  status_.throw_fault();
  if (workspace_->last_routed != this) {
    throw Error(ErrorCode::out_of_order,
                "host_counts was called, but no dispatch of this Exchange has counted; dispatch first");
  }
  const Place<i32>& counts = layout_.host.counts;
  i32* const pinned = counts.in(host_memory_.data());
  copy_bytes(pinned, at(layout_.device.counts), static_cast<std::size_t>(counts.bytes()), stream);
  return {pinned, static_cast<std::size_t>(counts.count)};
}

std::string Exchange::Impl::describe_plan(std::int64_t num_tokens, std::size_t payload) const {
  if (num_tokens < 0 || num_tokens > shape_.max_tokens) {
    throw Error(ErrorCode::invalid_argument,
                text("describe_plan for ", num_tokens, " tokens; expected 0 .. max_tokens, ", shape_.max_tokens));
  }
  if (payload >= config_.payloads.size()) {
    throw Error(ErrorCode::invalid_argument, text("describe_plan for payload ", payload, "; there are ",
                                                  config_.payloads.size(), ", numbered from 0"));
  }
  return kernels_.describe_plan(num_tokens, payload);
}

}  // namespace moelink
