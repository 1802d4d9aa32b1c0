#include "exchange/local_kernels.hpp"

#include "base/element.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"
#include "quantize/format.hpp"
#include "runtime/device_properties.hpp"
#include "runtime/host_queue.hpp"

namespace moelink {
namespace {

LocalDispatchSpec dispatch_spec(const ExchangeShape& shape, const Payload& payload, Element weighted) {
  return {.row_bytes = row_bytes_of(payload, shape.hidden),
          .scale_bytes = static_cast<i32>(payload.scale_bytes),
          .num_experts = static_cast<i32>(shape.num_kernel_experts),
          .top_k = shape.top_k,
          .threads = 0,
          .weighted = weighted,
          .is_part = shape.mode == Mode::tensor_parallel};
}

LocalCombineSpec combine_spec(const ExchangeShape& shape, const CombineTypes& types, const LocalDevice& limits) {
  return with_threads({.hidden = shape.hidden,
                       .top_k = shape.top_k,
                       .input = element_of(types.expert_output),
                       .output = element_of(types.output)},
                      limits);
}

}  // namespace

LocalDevice local_device(Device device) {
  const DeviceProperties properties = DeviceProperties::of(device);
  return {.is_host = properties.is_host,
          .num_sms = properties.is_host ? kMaxHostBlocks : properties.num_sms,
          .max_scratch_bytes = properties.max_scratch_bytes};
}

LocalDevice local_device_of_call(const LocalDevice& device, StreamView stream) {
  LocalDevice of_call = device;
  if (device.is_host) of_call.num_sms = min_of(stream.host_queue()->num_threads(), kMaxHostBlocks);
  return of_call;
}

std::string describe(const LocalDispatchPlan& plan, const LocalDispatchSpec& spec) {
  return text("dispatch ", name_of(plan.variant), ": ", plan.grid, " blocks of ", spec.threads, " threads, ",
              plan.parts, " per row, ", plan.scratch_bytes, " B scratch");
}

std::string describe(const LocalCombinePlan& plan, const LocalCombineSpec& spec) {
  return text("combine: ", plan.grid, " blocks of ", spec.threads, " threads, ", plan.parts, " per row");
}

LocalKernels::LocalKernels(KernelLoader& loader, const LocalDevice& limits, const ExchangeShape& shape,
                           const ExchangeConfig& config)
    : limits_(limits) {
  for (const Payload& declared : config.payloads) {
    const Payload payload = carried(declared, config.hidden);
    const Element element = element_of(payload.type);
    plain_.push_back(add_dispatch(loader, dispatch_spec(shape, payload, Element::none), shape.max_tokens));
    const bool may_be_weighted = config.weights_on_input && element != Element::none;
    weighted_.push_back(may_be_weighted ? add_dispatch(loader, dispatch_spec(shape, payload, element), shape.max_tokens)
                                        : DispatchKernels{});
    if (declared.quantize != Quantization::none) add_quantizing(loader, plain_.back(), declared, shape.max_tokens);
  }
  if (shape.mode == Mode::tensor_parallel) return;
  for (const CombineTypes& types : config.combine_types) {
    combine_.push_back(loader.add<LocalCombine>(combine_spec(shape, types, limits_)));
  }
}

LocalKernels LocalKernels::loaded(Device device, const LocalDevice& limits, const ExchangeShape& shape,
                                  const ExchangeConfig& config) {
  KernelLoader loader(device);
  LocalKernels kernels(loader, limits, shape, config);
  loader.load();
  kernels.check_residency(shape.max_tokens);
  return kernels;
}

void LocalKernels::check_residency(i64 max_tokens) const {
  for (const std::vector<DispatchKernels>* group : {&plain_, &weighted_}) {
    for (const DispatchKernels& kernels : *group) {
      if (kernels.prefill_is_used) check_prefill_fits(kernels.prefill, kernels.spec, max_tokens);
      if (kernels.quantizing_prefill_is_used) {
        check_prefill_fits(kernels.quantizing_prefill, kernels.quantizing_spec, max_tokens);
      }
    }
  }
}

void LocalKernels::check_prefill_fits(const Kernel<LocalPrefill>& prefill, const LocalDispatchSpec& spec,
                                      i64 max_tokens) const {
  const LocalDispatchPlan plan = plan_dispatch(spec, max_tokens, false, limits_);
  if (prefill.max_blocks_per_sm(plan.scratch_bytes) >= 1) return;
  throw Error(ErrorCode::unsupported, text("one block of prefill (", with_threads(spec, plan.variant, limits_).threads,
                                           " threads, ", plan.scratch_bytes,
                                           " B scratch) does not fit an SM of this device, so that its grid barrier "
                                           "could not be passed; lower max_tokens to ",
                                           max_decode_tokens(spec, limits_)));
}

/// Variants that no token count of the configuration leads to are not compiled.
LocalKernels::DispatchKernels LocalKernels::add_dispatch(KernelLoader& loader, const LocalDispatchSpec& spec,
                                                         i64 max_tokens) const {
  const i64 decode_tokens = max_decode_tokens(spec, limits_);
  DispatchKernels kernels{.spec = spec,
                          .quantizing_spec = spec,
                          .decode = {},
                          .quantizing_decode = {},
                          .prefill_is_used = false,
                          .quantizing_prefill_is_used = false,
                          .prefill = {},
                          .quantizing_prefill = {},
                          .move = {}};
  kernels.move = loader.add<LocalMove>(with_threads(spec, DispatchVariant::move, limits_));
  if (decode_tokens >= 0)
    kernels.decode = loader.add<LocalDecode>(with_threads(spec, DispatchVariant::decode, limits_));
  kernels.prefill_is_used = decode_tokens < max_tokens;
  if (kernels.prefill_is_used) {
    kernels.prefill = loader.add<LocalPrefill>(with_threads(spec, DispatchVariant::prefill, limits_));
  }
  return kernels;
}

/// Blocks that quantise have as many elements to read as those that do not, and share them so.
void LocalKernels::add_quantizing(KernelLoader& loader, DispatchKernels& kernels, const Payload& declared,
                                  i64 max_tokens) const {
  LocalDispatchSpec& spec = kernels.quantizing_spec;
  spec.quantize = format_of(declared.quantize);
  spec.input = element_of(declared.type);
  if (max_decode_tokens(spec, limits_) >= 0) {
    kernels.quantizing_decode = loader.add<LocalDecode>(with_threads(spec, DispatchVariant::decode, limits_));
  }
  kernels.quantizing_prefill_is_used = max_decode_tokens(spec, limits_) < max_tokens;
  if (kernels.quantizing_prefill_is_used) {
    kernels.quantizing_prefill = loader.add<LocalPrefill>(with_threads(spec, DispatchVariant::prefill, limits_));
  }
}

bool LocalKernels::quantizes(const DispatchCall& call) const { return !call.args.reuse_routing; }

void LocalKernels::dispatch(const DispatchCall& call, LocalDispatchArgs args, StreamView stream) const {
  const bool weighted = call.routing.weight_mode == WeightMode::on_input;
  const DispatchKernels& kernels = (weighted ? weighted_ : plain_)[call.payload];
  const LocalDispatchSpec& spec = call.unquantized ? kernels.quantizing_spec : kernels.spec;
  const LocalDispatchPlan plan = plan_dispatch(spec, call.args.tokens.rows, call.args.reuse_routing,
                                               local_device_of_call(limits_, stream), call.args.max_sms);
  apply(plan, args);
  const LaunchShape shape{.grid = plan.grid, .scratch_bytes = plan.scratch_bytes};
  switch (plan.variant) {
    case DispatchVariant::decode:
      return (call.unquantized ? kernels.quantizing_decode : kernels.decode).launch(shape, args, stream);
    case DispatchVariant::prefill:
      return (call.unquantized ? kernels.quantizing_prefill : kernels.prefill).launch(shape, args, stream);
    case DispatchVariant::move:
      return kernels.move.launch(shape, args, stream);
  }
}

void LocalKernels::combine(const CombineCall& call, LocalCombineArgs args, StreamView stream) const {
  const Kernel<LocalCombine>& kernel = combine_[call.types];
  const LocalCombinePlan plan =
      plan_combine(kernel.spec(), call.routing.num_tokens, local_device_of_call(limits_, stream), call.args.max_sms);
  args.parts = plan.parts;
  kernel.launch({.grid = plan.grid}, args, stream);
}

std::string LocalKernels::describe_dispatch(i64 num_tokens, std::size_t payload) const {
  const LocalDevice device = described_device();
  const LocalDispatchSpec& spec = plain_[payload].quantizing_spec;
  const LocalDispatchPlan plan = plan_dispatch(spec, num_tokens, false, device);
  return describe(plan, with_threads(spec, plan.variant, device));
}

std::string LocalKernels::describe_plan(i64 num_tokens, std::size_t payload) const {
  const LocalCombineSpec& spec = combine_.front().spec();
  return text(describe_dispatch(num_tokens, payload), '\n',
              describe(plan_combine(spec, num_tokens, described_device()), spec));
}

/// On the host, plans follow the threads of a stream: those that a stream has unless it is told otherwise.
LocalDevice LocalKernels::described_device() const {
  LocalDevice device = limits_;
  if (device.is_host) device.num_sms = min_of(default_host_threads(), kMaxHostBlocks);
  return device;
}

}  // namespace moelink
