#include "exchange/modes/nvlink_kernels.hpp"

#include <algorithm>
#include <limits>

#include "base/element.hpp"
#include "base/text.hpp"
#include "exchange/local_kernels.hpp"
#include "moelink/error.hpp"
#include "quantize/format.hpp"
#include "runtime/device_properties.hpp"

namespace moelink {
namespace {

NvlinkDispatchSpec dispatch_spec(const ExchangeShape& shape, const ExchangeConfig& config, const Payload& payload,
                                 Element weighted) {
  return {.row_bytes = row_bytes_of(payload, shape.hidden),
          .scale_bytes = static_cast<i32>(payload.scale_bytes),
          .num_ranks = shape.num_ranks,
          .tp_size = config.tp_size,
          .num_experts = static_cast<i32>(shape.num_places),
          .top_k = shape.top_k,
          .threads = 0,
          .weighted = weighted,
          .has_remotes = !shape.nodes.empty()};
}

NvlinkCombineSpec combine_spec(const ExchangeShape& shape, const ExchangeConfig& config, const CombineTypes& types) {
  const Element input = element_of(types.expert_output);
  return {.hidden = shape.hidden,
          .num_ranks = shape.num_ranks,
          .tp_size = config.tp_size,
          .top_k = shape.top_k,
          .threads = 0,
          .input = input,
          .partial = config.fp32_partials ? Element::float32 : input,
          .output = element_of(types.output),
          .has_remotes = !shape.nodes.empty()};
}

/// The budget of one call: less if the caller says so, or if its stream has fewer threads.
NvlinkBudget budget_of_call(const NvlinkBudget& budget, const LocalDevice& limits, int max_sms, StreamView stream) {
  NvlinkBudget of_call = budget;
  if (limits.is_host) of_call.sms = local_device_of_call(limits, stream).num_sms;
  if (max_sms > 0) of_call.sms = min_of(of_call.sms, max_sms);
  return of_call;
}

template <class Args>
void apply(NvlinkHalf half, Args& args) {
  args.sends = half != NvlinkHalf::receive ? 1 : 0;
  args.receives = half != NvlinkHalf::send ? 1 : 0;
}

/// The grid of a launch whose plan was made for all blocks but those that relay.
template <class Args>
i32 grid_with_relay(i32 grid, i32 relays, Args& args) {
  if (relays == 0) args.remote.relayed = nullptr;
  return grid + relays;
}

/// The most tokens of a call that is decode; -1: none is.
i64 max_decode_tokens(const NvlinkDispatchSpec& spec, const LocalDevice& limits) {
  return nvlink_decode_holds_rows(spec.row_bytes, limits) ? most_tokens_below_prefill(spec, limits) : -1;
}

void check_fits(const char* name, int blocks_per_sm, i32 scratch_bytes) {
  if (blocks_per_sm >= 1) return;
  throw Error(ErrorCode::unsupported, text("one block of ", name, " with ", scratch_bytes,
                                           " B scratch does not fit an SM of this device; lower max_tokens, top_k or "
                                           "the number of experts"));
}

}  // namespace

NvlinkKernels::NvlinkKernels(KernelLoader& loader, const LocalDevice& limits, const ExchangeShape& shape,
                             const ExchangeConfig& declared, bool is_shared)
    : limits_(limits), max_tokens_(shape.max_tokens) {
  for (const Payload& as_declared : declared.payloads) {
    const Payload payload = carried(as_declared, shape.hidden);
    const Element element = element_of(payload.type);
    plain_.push_back(add_dispatch(loader, dispatch_spec(shape, declared, payload, Element::none), as_declared));
    const bool may_be_weighted = declared.weights_on_input && element != Element::none;
    weighted_.push_back(may_be_weighted
                            ? add_dispatch(loader, dispatch_spec(shape, declared, payload, element), as_declared)
                            : DispatchKernels{});
  }
  for (const CombineTypes& types : declared.combine_types) {
    // A block of prefill takes a whole SM; where that is what all count with, so may a block of combine.
    const bool whole_sms = !is_shared || uses_prefill();
    const NvlinkCombineSpec spec = combine_spec(shape, declared, types);
    combine_.push_back(loader.add<NvlinkCombine>(with_threads(spec, limits, whole_sms)));
    combine_many_.emplace_back();
    // On the host both would do the same.
    const bool is_used = !limits.is_host && takes_combine_many(spec, max_tokens_);
    if (whole_sms && is_used && may_combine_many(spec, limits)) {
      combine_many_.back() = loader.add<NvlinkCombineMany>(with_many_threads(spec, limits));
    }
  }
}

/// Variants that no token count of the configuration leads to are not compiled. Each quantises if it can.
NvlinkKernels::DispatchKernels NvlinkKernels::add_dispatch(KernelLoader& loader, const NvlinkDispatchSpec& spec,
                                                           const Payload& declared) const {
  const QuantFormat format = format_of(declared.quantize);
  NvlinkDispatchSpec quantizing = spec;
  quantizing.quantize = format;
  quantizing.input = format != QuantFormat::none ? element_of(declared.type) : Element::none;
  const bool decode_quantizes = nvlink_decode_holds_rows(spec.row_bytes, limits_, token_bytes_per_byte(format));
  DispatchKernels kernels{.spec = decode_quantizes ? quantizing : spec,
                          .decode_tokens = -1,
                          .decode = {},
                          .prefill_is_used = false,
                          .prefill = {}};
  kernels.decode_tokens = max_decode_tokens(kernels.spec, limits_);
  if (kernels.decode_tokens >= 0) kernels.decode = loader.add<NvlinkDecode>(with_decode_threads(kernels.spec, limits_));
  kernels.prefill_is_used = kernels.decode_tokens < max_tokens_;
  if (kernels.prefill_is_used) {
    const NvlinkDispatchSpec& prefill = nvlink_prefill_quantizes(quantizing, limits_) ? quantizing : spec;
    kernels.prefill = loader.add<NvlinkPrefill>(with_prefill_threads(prefill, limits_));
  }
  return kernels;
}

bool NvlinkKernels::quantizes(const DispatchCall& call) const {
  const DispatchKernels& kernels = plain_[call.payload];
  const bool is_decode = call.args.tokens.rows <= kernels.decode_tokens;
  const NvlinkDispatchSpec& spec = is_decode ? kernels.spec : kernels.prefill.spec();
  return spec.quantize != QuantFormat::none;
}

bool NvlinkKernels::uses_prefill() const {
  return std::any_of(plain_.begin(), plain_.end(), [](const DispatchKernels& k) { return k.prefill_is_used; });
}

template <class Visit>
void NvlinkKernels::for_each_kernel(Visit&& visit) const {
  for (const std::vector<DispatchKernels>* group : {&plain_, &weighted_}) {
    for (const DispatchKernels& kernels : *group) {
      if (kernels.decode_tokens >= 0) {
        const i64 tokens = min_of(kernels.decode_tokens, max_tokens_);
        const i32 bytes = plan_nvlink_decode(kernels.spec, tokens, false, 1, 1, limits_).scratch_bytes;
        visit("dispatch", kernels.decode.max_blocks_per_sm(bytes), bytes);
      }
      if (kernels.prefill_is_used) {
        const i32 bytes = plan_nvlink_prefill(kernels.prefill.spec(), true, 1, limits_).scratch_bytes;
        visit("dispatch of many tokens", kernels.prefill.max_blocks_per_sm(bytes), bytes);
      }
    }
  }
  for (const Kernel<NvlinkCombine>& kernel : combine_) {
    const i32 bytes = combine_scratch_bytes(kernel.spec(), limits_);
    visit("combine", kernel.max_blocks_per_sm(bytes), bytes);
  }
  for (const std::optional<Kernel<NvlinkCombineMany>>& kernel : combine_many_) {
    if (!kernel) continue;
    const i32 bytes = CombineManyScratch(kernel->spec()).total;
    visit("combine of many tokens", kernel->max_blocks_per_sm(bytes), bytes);
  }
}

void NvlinkKernels::check_residency() const { for_each_kernel(check_fits); }

int NvlinkKernels::least_blocks_per_sm() const {
  int least = std::numeric_limits<int>::max();
  for_each_kernel([&](const char*, int blocks_per_sm, i32) { least = std::min(least, blocks_per_sm); });
  return least;
}

/// Blocks of decode that may wait at once.
i32 NvlinkKernels::decode_blocks(const DispatchKernels& kernels, i64 num_tokens, const NvlinkBudget& budget) const {
  if (limits_.is_host) return budget.sms;
  if (budget.is_shared) return budget.sms * budget.blocks_per_sm;
  const i32 bytes = plan_nvlink_decode(kernels.spec, num_tokens, false, 1, 1, limits_).scratch_bytes;
  return budget.sms * max_of(kernels.decode.max_blocks_per_sm(bytes), 1);
}

void NvlinkKernels::dispatch(const DispatchCall& call, NvlinkHalf half, const NvlinkBudget& budget,
                             NvlinkDispatchArgs args, StreamView stream) const {
  const bool weighted = call.routing.weight_mode == WeightMode::on_input;
  const DispatchKernels& kernels = (weighted ? weighted_ : plain_)[call.payload];
  apply(half, args);
  if (call.args.tokens.rows <= kernels.decode_tokens) return launch_decode(kernels, call, budget, args, stream);
  launch_prefill(kernels, call, budget, args, stream);
}

void NvlinkKernels::launch_decode(const DispatchKernels& kernels, const DispatchCall& call, const NvlinkBudget& budget,
                                  NvlinkDispatchArgs args, StreamView stream) const {
  const i64 num_tokens = call.args.tokens.rows;
  const NvlinkBudget now = budget_of_call(budget, limits_, call.args.max_sms, stream);
  // How a row is cut is what members of a group must choose alike: it follows from what was agreed, not from the limit
  // of this call or the threads of its stream.
  const auto relays_of = [&](i32 blocks) { return relay_blocks(kernels.spec.has_remotes, limits_.is_host, blocks); };
  const auto plan_for = [&](const NvlinkBudget& of) {
    const i32 blocks = decode_blocks(kernels, num_tokens, of);
    return plan_nvlink_decode(kernels.spec, num_tokens, call.args.reuse_routing, blocks - relays_of(blocks), of.sms,
                              limits_);
  };
  NvlinkDecodePlan plan = plan_for(now);
  plan.parts = plan_for(budget).parts;
  if (budget.is_shared) plan.late_flags = 0;  // there is no link to wait for
  apply(plan, args);
  args.format.scales_by_part = kernels.spec.quantize != QuantFormat::none ? 1 : 0;
  const i32 relays = relays_of(decode_blocks(kernels, num_tokens, now));
  const i32 grid = grid_with_relay(plan.grid, relays, args);
  kernels.decode.launch({.grid = grid, .scratch_bytes = plan.scratch_bytes}, args, stream);
}

void NvlinkKernels::launch_prefill(const DispatchKernels& kernels, const DispatchCall& call, const NvlinkBudget& budget,
                                   NvlinkDispatchArgs args, StreamView stream) const {
  const NvlinkBudget now = budget_of_call(budget, limits_, call.args.max_sms, stream);
  const i32 relays = relay_blocks(kernels.spec.has_remotes, limits_.is_host, now.sms);
  const NvlinkPrefillPlan plan =
      plan_nvlink_prefill(kernels.prefill.spec(), args.receives != 0, now.sms - relays, limits_, now.is_shared);
  apply(plan, args);
  const i32 grid = grid_with_relay(plan.grid, relays, args);
  kernels.prefill.launch({.grid = grid, .scratch_bytes = plan.scratch_bytes}, args, stream);
}

bool NvlinkKernels::combines_many(std::size_t types, i64 num_tokens) const {
  return combine_many_[types].has_value() && takes_combine_many(combine_[types].spec(), num_tokens);
}

void NvlinkKernels::combine(const CombineCall& call, NvlinkHalf half, const NvlinkBudget& budget,
                            NvlinkCombineArgs args, StreamView stream) const {
  const Kernel<NvlinkCombine>& kernel = combine_[call.types];
  const NvlinkBudget now = budget_of_call(budget, limits_, call.args.max_sms, stream);
  const i32 blocks = now.sms * now.blocks_per_sm;
  apply(half, args);
  if (combines_many(call.types, call.routing.num_tokens)) {
    const Kernel<NvlinkCombineMany>& many = *combine_many_[call.types];
    const NvlinkCombinePlan plan = plan_nvlink_combine_many(many.spec(), call.routing.num_tokens, blocks);
    apply(plan, args);
    return many.launch({.grid = plan.grid, .scratch_bytes = CombineManyScratch(many.spec()).total}, args, stream);
  }
  const i32 relays = relay_blocks(kernel.spec().has_remotes, limits_.is_host, blocks);
  NvlinkCombinePlan plan = plan_nvlink_combine(kernel.spec(), call.routing.num_tokens, blocks - relays, limits_);
  if (budget.is_shared) plan.late_flags = 0;  // there is no link to wait for
  apply(plan, args);
  const i32 grid = grid_with_relay(plan.grid, relays, args);
  kernel.launch({.grid = grid, .scratch_bytes = combine_scratch_bytes(kernel.spec(), limits_)}, args, stream);
}

std::string NvlinkKernels::describe_plan(i64 num_tokens, std::size_t payload, const NvlinkBudget& budget) const {
  const DispatchKernels& kernels = plain_[payload];
  const i32 sms = limits_.is_host ? min_of(default_host_threads(), limits_.num_sms) : budget.sms;
  const NvlinkBudget now{.sms = sms, .is_shared = budget.is_shared, .blocks_per_sm = budget.blocks_per_sm};
  const bool has_remotes = kernels.spec.has_remotes;
  const auto workers = [&](i32 blocks) { return blocks - relay_blocks(has_remotes, limits_.is_host, blocks); };
  std::string dispatch;
  if (num_tokens <= kernels.decode_tokens) {
    const i32 blocks = workers(decode_blocks(kernels, num_tokens, now));
    const NvlinkDecodePlan plan = plan_nvlink_decode(kernels.spec, num_tokens, false, blocks, sms, limits_);
    dispatch = text("decode: ", plan.grid, " blocks of ", kernels.decode.spec().threads, " threads, ", plan.parts,
                    " per row, ", plan.scratch_bytes, " B scratch",
                    kernels.spec.quantize != QuantFormat::none ? ", quantising" : "");
  } else {
    const NvlinkPrefillPlan plan =
        plan_nvlink_prefill(kernels.prefill.spec(), true, workers(sms), limits_, budget.is_shared);
    dispatch =
        text("prefill: ", plan.grid, " blocks of ", kernels.prefill.spec().threads, " threads, ", plan.num_senders,
             " of them send, a flag for ", 1 << plan.log2_slots_per_flag, " rows, ", plan.scratch_bytes, " B scratch",
             kernels.prefill.spec().quantize != QuantFormat::none ? ", quantising" : "");
  }
  const NvlinkCombineSpec& spec = combine_.front().spec();
  const char* const name = has_remotes ? "p2p" : "nvlink";
  const char* const partials = spec.partial == Element::float32 && spec.input != Element::float32
                                   ? "fp32 partials"
                                   : "partials as the expert output";
  const i32 blocks = sms * now.blocks_per_sm;
  if (combines_many(0, num_tokens)) {
    const NvlinkCombineSpec& many = combine_many_.front()->spec();
    const NvlinkCombinePlan plan = plan_nvlink_combine_many(many, num_tokens, blocks);
    return text("dispatch ", name, " ", dispatch, "\ncombine ", name, ": ", plan.grid, " blocks of ", many.threads,
                " threads, a warp for each of ", plan.send_blocks, " pieces of a row, ", CombineManyScratch(many).total,
                " B scratch, ", partials);
  }
  const NvlinkCombinePlan combine = plan_nvlink_combine(spec, num_tokens, workers(blocks), limits_);
  return text("dispatch ", name, " ", dispatch, "\ncombine ", name, ": ", combine.grid, " blocks of ",
              combine_teams(spec, limits_), " teams, up to ", combine.send_blocks, " per row, ", partials,
              workers(blocks) != blocks ? "; a block of each launch relays" : "");
}

}  // namespace moelink
