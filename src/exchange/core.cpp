#include "exchange/core.hpp"

namespace moelink {

LocalDispatchArgs local_dispatch_args(const ExchangeCore& core, const DispatchCall& call, const FaultContext& fault) {
  const DeviceLayout& d = core.layout.device;
  const DispatchArgs& args = call.args;
  const RoutingState& routing = call.routing;
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
          .rows = call.rows.data,
          .row_stride_bytes = call.rows.stride_bytes(),
          .row_scales = call.scales.data,
          .tensor_scale = args.tensor_scale,
          .offsets = core.at(d.offsets),
          .counts = core.at(d.counts),
          .expert_of_row = core.at(d.expert_of_row),
          .weight_of_row = core.at(d.weight_of_row),
          .source_of_row = core.at(d.source_of_row),
          .row_of_entry = core.at(d.row_of_entry),
          .weight_of_entry = core.at(d.weight_of_entry),
          .num_tokens_snapshot = core.at(d.num_tokens_snapshot),
          .grid_barrier = core.at(d.grid_barrier),
          .block_counts = core.at(d.block_counts),
          .phase = core.at(d.phase),
          .status = core.in_host_memory(core.layout.host.status),
          .fault = fault};
}

LocalCombineArgs local_combine_args(const ExchangeCore& core, const CombineCall& call) {
  const DeviceLayout& d = core.layout.device;
  const CombineArgs& args = call.args;
  return {.expert_output = args.expert_output.data,
          .expert_output_stride_bytes = args.expert_output.stride_bytes(),
          .expert_output_rows = args.expert_output.rows,
          .shared = args.shared.data,
          .shared_stride_bytes = args.shared.stride_bytes(),
          .output = args.output.data,
          .output_stride_bytes = args.output.stride_bytes(),
          .accumulate = args.accumulate ? 1 : 0,
          .weighted = call.routing.weight_mode == WeightMode::on_combine ? 1 : 0,
          .num_tokens = static_cast<i32>(call.routing.num_tokens),
          .parts = 1,  // the plan's to say
          .num_tokens_snapshot = core.at(d.num_tokens_snapshot),
          .row_of_entry = core.at(d.row_of_entry),
          .weight_of_entry = core.at(d.weight_of_entry),
          .phase = core.at(d.phase),
          .status = core.in_host_memory(core.layout.host.status)};
}

}  // namespace moelink
