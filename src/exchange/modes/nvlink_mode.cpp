#include "exchange/modes/nvlink_mode.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Epochs and counts zero, slots and rows -1.
Buffer filled_tables(Device device, const NvlinkPrivateLayout& layout) {
  constexpr unsigned char kNone = 0xff;  // every byte of -1
  Buffer buffer(device, static_cast<std::size_t>(layout.total_bytes));
  const Stream stream(device, {.num_threads = 1});
  fill_bytes(buffer.data(), kNone, buffer.size_bytes(), stream);
  fill_bytes(buffer.data(), 0, static_cast<std::size_t>(layout.zero_bytes), stream);
  stream.synchronize();
  return buffer;
}

}  // namespace

NvlinkMode::NvlinkMode(const ExchangeCore& core)
    : core_(core),
      shape_(nvlink_shape(core.shape, core.config)),
      layout_(NvlinkLayout::of(shape_)),
      private_layout_(NvlinkPrivateLayout::of(shape_, nvlink_block_count_words(core.shape, core.config, core.device))),
      workspace_(core.communicator, kExchangeName, layout_.total_bytes, Multicast::no, core.shape.nodes) {
  agree_on_budget();
  if (!core.shape.nodes.empty()) remotes_.emplace(core, shape_);
  load_kernels();
}

/// The smallest share of any rank, so that members of a group plan alike.
void NvlinkMode::agree_on_budget() {
  const Communicator& communicator = core_.communicator;
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  const bool on_host = communicator.device().is_host();
  const i32 mine = on_host ? 1 : fair_share_of_blocks(communicator, 1);
  const auto all = all_gather_value(bootstrap, "Exchange: budget of SMs", mine, communicator.deadline());
  budget_.sms = *std::min_element(all.begin(), all.end());
  budget_.is_shared = !on_host && budget_.sms < core_.device.num_sms;
  agree_over_ranks(
      bootstrap, "Exchange: nvlink memory",
      [&] {
        residency_ = ResidencyClaim(communicator, kExchangeName, {{budget_.sms, 1}});
        private_memory_ = filled_tables(communicator.device(), private_layout_);
      },
      communicator.deadline());
}

/// Every rank has loaded every kernel before any rank's first launch waits for another.
void NvlinkMode::load_kernels() {
  const Communicator& communicator = core_.communicator;
  agree_over_ranks(
      *communicator.state().bootstrap, "Exchange: nvlink kernels",
      [&] {
        KernelLoader loader(communicator.device());
        kernels_.emplace(loader, core_.device, core_.shape, core_.declared, budget_.is_shared);
        loader.load();
        kernels_->check_residency();
      },
      communicator.deadline());
  const int mine = budget_.is_shared ? kernels_->least_blocks_per_sm() : 1;
  const auto all =
      all_gather_value(*communicator.state().bootstrap, "Exchange: blocks per SM", mine, communicator.deadline());
  budget_.blocks_per_sm = *std::min_element(all.begin(), all.end());
}

void NvlinkMode::dispatch(const DispatchCall& call, StreamView stream) {
  kernels_->dispatch(call, NvlinkHalf::both, budget_, dispatch_args(call), stream);
}
void NvlinkMode::dispatch_send(const DispatchCall& call, StreamView stream) {
  kernels_->dispatch(call, NvlinkHalf::send, budget_, dispatch_args(call), stream);
}
void NvlinkMode::dispatch_receive(const DispatchCall& call, StreamView stream) {
  kernels_->dispatch(call, NvlinkHalf::receive, budget_, dispatch_args(call), stream);
}
void NvlinkMode::combine(const CombineCall& call, StreamView stream) {
  kernels_->combine(call, NvlinkHalf::both, budget_, combine_args(call), stream);
}
void NvlinkMode::combine_send(const CombineCall& call, StreamView stream) {
  kernels_->combine(call, NvlinkHalf::send, budget_, combine_args(call), stream);
}
void NvlinkMode::combine_receive(const CombineCall& call, StreamView stream) {
  kernels_->combine(call, NvlinkHalf::receive, budget_, combine_args(call), stream);
}

void NvlinkMode::check() {
  workspace_.check();
  if (remotes_.has_value()) remotes_->check();
}

NvlinkDispatchArgs NvlinkMode::dispatch_args(const DispatchCall& call) const {
  NvlinkDispatchArgs args{};
  args.local = local_dispatch_args(core_, call, workspace_.fault_context());
  args.local.block_counts = private_layout_.block_counts.in(private_memory_.data());
  args.expert_map = call.args.expert_map;
  args.num_logical_experts = static_cast<i32>(core_.config.num_experts);
  args.max_replicas = core_.config.max_replicas;
  args.format.payload = static_cast<u8>(call.payload);
  args.format.reuse_routing = call.args.reuse_routing ? 1 : 0;
  args.shape = shape_;
  args.layout = layout_;
  args.tables = private_layout_.tables(private_memory_.data());
  args.window = workspace_.window();
  if (remotes_.has_value()) args.remote = remotes_->args();
  return args;
}

NvlinkCombineArgs NvlinkMode::combine_args(const CombineCall& call) const {
  NvlinkCombineArgs args{};
  args.local = local_combine_args(core_, call);
  args.shape = shape_;
  args.layout = layout_;
  args.tables = private_layout_.tables(private_memory_.data());
  args.window = workspace_.window();
  if (remotes_.has_value()) args.remote = remotes_->args();
  args.fault = workspace_.fault_context();
  return args;
}

std::string NvlinkMode::describe_plan(i64 num_tokens, std::size_t payload) const {
  return text(kernels_->describe_plan(num_tokens, payload, budget_), " memory=", name_of(workspace_.memory_kind()),
              remotes_.has_value() ? text("\n", remotes_->describe()) : "");
}

}  // namespace moelink
