#include "exchange/exchange_impl.hpp"

#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "exchange/local_kernels.hpp"
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

/// Everything up to the memory that all modes have: together, or on no rank.
ExchangeCore agreed_core(const Communicator& communicator, const ExchangeConfig& config,
                         std::shared_ptr<Workspace::State> shared) {
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  const Device device = communicator.device();
  compare_over_ranks(bootstrap, "Exchange", fields_of(config), communicator.deadline());
  std::optional<ExchangeCore> core;
  agree_over_ranks(
      bootstrap, "Exchange: configuration and memory",
      [&] {
        const ExchangeShape shape = check_config(config, communicator);
        const LocalDevice limits = local_device(device);
        MemoryLayout layout = lay_out_memory(shape, config, limits);
        std::shared_ptr<Workspace::State> workspace = fitting_workspace(device, layout.device, std::move(shared));
        PinnedBuffer host_memory(device, static_cast<std::size_t>(layout.host.total_bytes));
        core.emplace(ExchangeCore{communicator, config, carried_config(config), shape, limits, std::move(layout),
                                  std::move(workspace), std::move(host_memory)});
      },
      communicator.deadline());
  return std::move(*core);
}

TokenQuantizers agreed_quantizers(const ExchangeCore& core) {
  std::optional<TokenQuantizers> quantizers;
  agree_over_ranks(
      *core.communicator.state().bootstrap, "Exchange: quantising kernels", [&] { quantizers.emplace(core); },
      core.communicator.deadline());
  return std::move(*quantizers);
}

}  // namespace

Exchange::Impl::Impl(const Communicator& communicator, const ExchangeConfig& config,
                     std::shared_ptr<Workspace::State> workspace)
    : core_(agreed_core(communicator, config, std::move(workspace))),
      status_(core_.in_host_memory(core_.layout.host.status)),
      check_pointer_(communicator.device()),
      mode_(make_mode(core_)),
      quantizers_(agreed_quantizers(core_)) {}

Exchange::Impl::~Impl() {
  if (core_.workspace->in_flight == this) core_.workspace->in_flight = nullptr;
  if (core_.workspace->last_routed == this) core_.workspace->last_routed = nullptr;
}

ExpertBatch Exchange::Impl::dispatch(const DispatchArgs& args, StreamView stream) {
  const DispatchCall call = prepared(checked(args, stream), stream);
  mode_->dispatch(call, stream);
  enter_dispatch(call, Stage::dispatched);
  return batch();
}

std::uint64_t Exchange::Impl::dispatch_send(const DispatchArgs& args, StreamView stream) {
  const DispatchCall call = prepared(checked(args, stream), stream);
  mode_->dispatch_send(call, stream);
  enter_dispatch(call, Stage::dispatch_sent);
  return ++num_sent_;
}

ExpertBatch Exchange::Impl::dispatch_receive(std::uint64_t call, StreamView stream) {
  check_stream(stream, core_.communicator.device());
  check_next(Stage::dispatch_sent, "dispatch_receive");
  check_ticket(call, "DispatchTicket");
  mode_->dispatch_receive(dispatch_, stream);
  stage_ = Stage::dispatched;
  return batch();
}

void Exchange::Impl::combine(const CombineArgs& args, StreamView stream) {
  mode_->combine(checked(args, stream), stream);
  stage_ = Stage::combined;
  core_.workspace->in_flight = nullptr;
}

std::uint64_t Exchange::Impl::combine_send(const CombineArgs& args, StreamView stream) {
  const CombineCall call = checked(args, stream);
  mode_->combine_send(call, stream);
  combine_ = call;
  stage_ = Stage::combine_sent;
  return ++num_sent_;
}

void Exchange::Impl::combine_receive(std::uint64_t call, StreamView stream) {
  check_stream(stream, core_.communicator.device());
  check_next(Stage::combine_sent, "combine_receive");
  check_ticket(call, "CombineTicket");
  mode_->combine_receive(combine_, stream);
  stage_ = Stage::combined;
  core_.workspace->in_flight = nullptr;
}

/// A dispatch as a mode gets it.
DispatchCall Exchange::Impl::checked(const DispatchArgs& args, StreamView stream) {
  check_stream(stream, core_.communicator.device());
  check_dispatch_is_next(args.reuse_routing);
  const DispatchChoice choice = check_dispatch(args, core_.declared, core_.shape, dispatch_.routing);
  check_pointers(args);
  DispatchCall call{.args = args,
                    .payload = choice.payload,
                    .routing = choice.routing,
                    .rows = rows_of_call(args, choice),
                    .scales = scales_of_call(choice)};
  check_apart_from_rows(args, call.rows, call.scales, core_.config);
  return call;
}

DispatchCall Exchange::Impl::prepared(DispatchCall call, StreamView stream) const {
  call.unquantized = core_.declared.payloads[call.payload].quantize != Quantization::none;
  if (call.unquantized && !mode_->quantizes(call)) quantizers_.quantize(call, stream);
  return call;
}

CombineCall Exchange::Impl::checked(const CombineArgs& args, StreamView stream) {
  check_stream(stream, core_.communicator.device());
  check_next(Stage::dispatched, "combine");
  const std::size_t types = check_combine(args, core_.config, core_.shape, dispatch_.routing);
  check_output_apart(args, core_.workspace->memory().data(), core_.layout.device.metadata_bytes);
  check_pointer_("CombineArgs::expert_output", args.expert_output.data);
  check_pointer_("CombineArgs::shared", args.shared.data);
  check_pointer_("CombineArgs::output", args.output.data);
  return {.args = args, .types = types, .routing = dispatch_.routing};
}

void Exchange::Impl::enter_dispatch(const DispatchCall& call, Stage stage) {
  dispatch_ = call;
  stage_ = stage;
  core_.workspace->in_flight = this;
  core_.workspace->last_routed = this;
}

void Exchange::Impl::check_dispatch_is_next(bool reuse_routing) const {
  check_fault();
  switch (stage_) {
    case Stage::combined:
      break;
    case Stage::dispatch_sent:
    case Stage::dispatched:
      throw Error(ErrorCode::out_of_order,
                  "dispatch was called twice; combine must answer the first. Batches that overlap need an Exchange "
                  "each");
    case Stage::combine_sent:
      throw Error(ErrorCode::out_of_order, "dispatch was called before combine_receive; receive first");
  }
  if (core_.workspace->in_flight != nullptr) {
    throw Error(ErrorCode::out_of_order,
                "another Exchange that shares this workspace is between dispatch and combine; Exchanges that are in "
                "flight together need a workspace each");
  }
  if (reuse_routing && core_.workspace->last_routed != this) {
    throw Error(ErrorCode::out_of_order,
                core_.workspace->last_routed == nullptr
                    ? "DispatchArgs::reuse_routing is set, but there was no dispatch to reuse; route first"
                    : "DispatchArgs::reuse_routing is set, but another Exchange that shares this workspace has routed "
                      "since; route anew");
  }
}

/// Any call but dispatch.
void Exchange::Impl::check_next(Stage expected, const char* call) const {
  check_fault();
  if (stage_ == expected) return;
  const char* const next = stage_ == Stage::combined        ? "without a dispatch to answer; dispatch first"
                           : stage_ == Stage::dispatch_sent ? "before dispatch_receive; receive first"
                           : stage_ == Stage::dispatched    ? "although there is nothing to receive; combine is next"
                                                            : "before combine_receive; receive first";
  throw Error(ErrorCode::out_of_order, text(call, " was called ", next));
}

void Exchange::Impl::check_ticket(std::uint64_t call, const char* name) const {
  if (call == num_sent_) return;
  throw Error(ErrorCode::out_of_order,
              text("the ", name, call == 0 ? std::string(" was moved from") : text(" is of send ", call),
                   "; expected that of the last send, ", num_sent_));
}

void Exchange::Impl::check_pointers(const DispatchArgs& args) {
  check_pointer_("DispatchArgs::tokens", args.tokens.data);
  check_pointer_("DispatchArgs::scales", args.scales.data);
  check_pointer_("DispatchArgs::rows", args.rows.data);
  check_pointer_("DispatchArgs::tensor_scale", args.tensor_scale);
  if (args.reuse_routing) return;
  check_pointer_("DispatchArgs::expert_ids", args.expert_ids.data);
  check_pointer_("DispatchArgs::weights", args.weights);
  check_pointer_("DispatchArgs::num_tokens", args.num_tokens);
  check_pointer_("DispatchArgs::expert_map", args.expert_map);
}

MutableMatrixView Exchange::Impl::rows_of_call(const DispatchArgs& args, const DispatchChoice& choice) const {
  const Payload& payload = core_.config.payloads[choice.payload];
  MutableMatrixView rows{.data = core_.at(core_.layout.device.rows),
                         .type = payload.type,
                         .columns = payload.type == DataType::bytes ? payload.row_bytes : core_.config.hidden};
  if (args.rows.data != nullptr) rows = args.rows;
  rows.rows = moelink::rows_of(choice.routing, core_.shape.num_local_experts);
  rows.row_stride_bytes = rows.stride_bytes();
  return rows;
}

MutableMatrixView Exchange::Impl::scales_of_call(const DispatchChoice& choice) const {
  const i64 scale_bytes = core_.config.payloads[choice.payload].scale_bytes;
  if (scale_bytes == 0) return {.type = DataType::bytes};
  return {.data = core_.at(core_.layout.device.row_scales),
          .type = DataType::bytes,
          .rows = moelink::rows_of(choice.routing, core_.shape.num_local_experts),
          .columns = scale_bytes,
          .row_stride_bytes = scale_bytes};
}

ExpertBatch Exchange::Impl::batch() const {
  const DeviceLayout& d = core_.layout.device;
  return {.rows = dispatch_.rows,
          .scales = dispatch_.scales,
          .offsets = core_.at(d.offsets),
          .counts = core_.at(d.counts),
          .expert_of_row = core_.at(d.expert_of_row),
          .weight_of_row = core_.at(d.weight_of_row),
          .source_of_row = core_.at(d.source_of_row),
          .num_local_experts = core_.shape.num_local_experts,
          .capacity = dispatch_.routing.capacity,
          .layout = dispatch_.routing.layout};
}

MutableMatrixView Exchange::Impl::expert_output_buffer(DataType type) const {
  if (!core_.config.own_expert_output) {
    throw Error(ErrorCode::invalid_argument,
                "there is no expert_output_buffer(): set ExchangeConfig::own_expert_output at construction");
  }
  for (const CombineTypes& types : core_.config.combine_types) {
    if (types.expert_output == type) {
      return {.data = core_.at(core_.layout.device.expert_output),
              .type = type,
              .rows = core_.shape.row_capacity,
              .columns = core_.shape.hidden,
              .row_stride_bytes = 0};
    }
  }
  throw Error(ErrorCode::invalid_argument, text("expert_output_buffer of ", name_of(type),
                                                ": no ExchangeConfig::combine_types reads it; declare it there"));
}

std::span<const std::int32_t> Exchange::Impl::host_counts(StreamView stream) {
  check_stream(stream, core_.communicator.device());
  check_fault();
  if (stage_ == Stage::dispatch_sent || core_.workspace->last_routed != this) {
    throw Error(ErrorCode::out_of_order,
                "host_counts was called, but no dispatch of this Exchange has counted; dispatch first (and receive)");
  }
  i32* const pinned = core_.in_host_memory(core_.layout.host.counts);
  const auto count = static_cast<std::size_t>(core_.shape.num_local_experts);
  if (count != 0) copy_bytes(pinned, core_.at(core_.layout.device.counts), count * sizeof(i32), stream);
  return {pinned, count};
}

void Exchange::Impl::check_fault() const {
  mode_->check();
  status_.throw_calls_out_of_order();
}

void Exchange::Impl::check() {
  check_fault();
  status_.throw_data_errors();
}

std::string Exchange::Impl::describe_plan(std::int64_t num_tokens, std::size_t payload) const {
  if (num_tokens < 0 || num_tokens > core_.shape.max_tokens) {
    throw Error(ErrorCode::invalid_argument,
                text("describe_plan for ", num_tokens, " tokens; expected 0 .. max_tokens, ", core_.shape.max_tokens));
  }
  if (payload >= core_.config.payloads.size()) {
    throw Error(ErrorCode::invalid_argument, text("describe_plan for payload ", payload, "; there are ",
                                                  core_.config.payloads.size(), ", numbered from 0"));
  }
  return mode_->describe_plan(num_tokens, payload);
}

}  // namespace moelink
