#include "exchange/modes/tensor_parallel_mode.hpp"

#include <algorithm>

#include "base/element.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Private memory of one rank.
struct PrivateLayout {
  Place<u64> epochs;
  Place<RoutingDigest> digest;
  i64 total_bytes = 0;

  static PrivateLayout of(const TensorParallelLayout& shared) {
    Carver carver;
    PrivateLayout layout;
    layout.epochs = carver.take<u64>(TensorParallelEpochs::count(shared.num_items));
    layout.digest = carver.take<RoutingDigest>(1);
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

Buffer zeroed(Device device, i64 size_bytes) {
  Buffer buffer(device, static_cast<std::size_t>(size_bytes));
  const Stream stream(device, {.num_threads = 1});
  fill_bytes(buffer.data(), 0, buffer.size_bytes(), stream);
  stream.synchronize();
  return buffer;
}

}  // namespace

TensorParallelMode::TensorParallelMode(const ExchangeCore& core)
    : core_(core),
      facts_(tp_facts(core.shape, core.config, core.device.is_host)),
      layout_(tp_layout(facts_)),
      workspace_(core.communicator, kExchangeName, layout_.total_bytes,
                 may_use_nvls(core.config) ? Multicast::if_possible : Multicast::no) {
  facts_.multicast = workspace_.window().multicast != nullptr;  // the same on every rank of a node
  if (facts_.only == TensorParallelSum::nvls && !facts_.multicast) {
    throw Error(ErrorCode::unsupported, text("ExchangeConfig::tensor_parallel_sum is nvls, which cannot be used here: ",
                                             workspace_.why_no_multicast(), "; leave the choice to `automatic`"));
  }
  claim_blocks();
  load_kernels();
}

/// Any kernel of a rank must find SMs while the others that share its device wait for it: whatever waits or has a grid
/// barrier counts with a whole SM for each block, and every rank has its share of the SMs.
void TensorParallelMode::claim_blocks() {
  const Communicator& communicator = core_.communicator;
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  const int mine =
      facts_.on_host ? facts_.max_workers + 1 : std::min(kTpMaxWorkers + 1, fair_share_of_blocks(communicator, 1));
  const auto all = all_gather_value(bootstrap, "Exchange: blocks", mine, communicator.deadline());
  const int blocks = *std::min_element(all.begin(), all.end());
  if (blocks < 2) {
    throw Error(
        ErrorCode::unsupported,
        "a rank has one SM of the device that it shares; a tensor-parallel combine has two blocks at least: put "
        "fewer ranks on the device");
  }
  facts_.max_workers = min_of(blocks - 1, static_cast<int>(layout_.num_workers));
  agree_over_ranks(
      bootstrap, "Exchange: budget",
      [&] {
        residency_ = ResidencyClaim(communicator, kExchangeName, {{facts_.max_workers + 1, 1}});
        private_memory_ = zeroed(communicator.device(), PrivateLayout::of(layout_).total_bytes);
      },
      communicator.deadline());
}

void TensorParallelMode::load_kernels() {
  const Communicator& communicator = core_.communicator;
  agree_over_ranks(
      *communicator.state().bootstrap, "Exchange: kernels",
      [&] {
        LocalDevice share = core_.device;
        if (!facts_.on_host) share.num_sms = fair_share_of_blocks(communicator, 1);
        KernelLoader loader(communicator.device());
        local_.emplace(loader, share, core_.shape, core_.declared);
        sums_.emplace(loader, facts_, core_.shape, core_.config);
        loader.load();
        local_->check_residency(core_.shape.max_tokens);
        if (!sums_->fit()) {
          throw Error(ErrorCode::unsupported,
                      "a block of the tensor-parallel combine does not fit an SM of this device; use fewer ranks, or "
                      "another ExchangeConfig::tensor_parallel_sum");
        }
      },
      communicator.deadline());
}

void TensorParallelMode::dispatch(const DispatchCall& call, StreamView stream) {
  LocalDispatchArgs args = local_dispatch_args(core_, call, workspace_.fault_context());
  // No id names the expert that kernels of a rank without experts have.
  args.first_expert =
      static_cast<i32>(core_.shape.num_local_experts == 0 ? core_.shape.num_experts : core_.shape.first_expert);
  args.num_global_experts = static_cast<i32>(core_.shape.num_experts);
  args.digest = PrivateLayout::of(layout_).digest.in(private_memory_.data());
  local_->dispatch(call, args, stream);
}

void TensorParallelMode::combine(const CombineCall& call, StreamView stream) {
  const Element part = tp_part(core_.config, core_.config.combine_types[call.types]);
  const TpPlan plan = plan_tp_combine(facts_, bytes_of(part), call.routing.num_tokens, call.args.max_sms);
  sums_->launch(plan, call.types, sum_args(call, plan, part), stream);
}

TensorParallelArgs TensorParallelMode::sum_args(const CombineCall& call, const TpPlan& plan, Element part) const {
  const PrivateLayout layout = PrivateLayout::of(layout_);
  // Both types: parts in fp32 may be of outputs in 16 bits on one rank and in 32 on another, which would store their
  // shards to each other.
  const Element output = element_of(core_.config.combine_types[call.types].output);
  // And `accumulate`: rank 0's output is what is added, so that another rank would ask for it in vain.
  const u64 key = static_cast<u64>(call.routing.num_tokens) << 32 | static_cast<u64>(call.args.accumulate) << 31 |
                  static_cast<u64>(output) << 24 | static_cast<u64>(part) << 16 | static_cast<u64>(plan.workers);
  return {.combine = local_combine_args(core_, call),
          .first_item = first_tp_item(facts_, bytes_of(part)),
          .chunk_tiles = plan.chunk_tiles,
          .call_key = key,
          .digest = layout.digest.in(private_memory_.data()),
          .layout = layout_,
          .window = workspace_.window(),
          .epochs = layout.epochs.in(private_memory_.data()),
          .fault = workspace_.fault_context()};
}

std::string TensorParallelMode::describe_plan(i64 num_tokens, std::size_t payload) const {
  return text(local_->describe_dispatch(num_tokens, payload), '\n', "combine: ",
              describe(plan_tp_combine(facts_, bytes_of(tp_part(core_.config, core_.config.combine_types.front())),
                                       num_tokens)),
              " memory=", name_of(workspace_.memory_kind()));
}

void TensorParallelMode::add_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                                    MemoryReport& report) {
  const TpFacts facts = tp_facts(shape, config, device.is_host);
  const TensorParallelLayout layout = tp_layout(facts);
  const std::string ranks = text("ranks ", facts.num_ranks);
  const std::string workers = text("blocks ", layout.num_workers);
  const std::string unit = text(layout.unit_bytes, " B");
  const i64 part_bytes = facts.has_wide_parts ? 4 : 2;
  const auto add = [&](const char* name, const std::string& formula, i64 bytes, const char* where) {
    report.items.push_back({name, formula, bytes, where});
  };
  add("control lines", text("2 * ", ranks, " * ", kTpControlWords, " * 8 B"), layout.control.bytes(), "shared");
  add("push lines", text("4 * ", ranks, " * items ", layout.num_items, " * ", kTpItemUnits, " units * ", unit),
      layout.lines.bytes(), "shared");
  const std::string slot = text(workers, " * ", kTpChunkTiles, " tiles * ", kTpTileUnits, " units * ", unit);
  add("staging", text(kTpPullSlots, " * ", slot), layout.staging.bytes(), "shared");
  add("results", slot, layout.results.bytes(), "shared");
  if (layout.parts.bytes() != 0) {
    add("parts", text("max_tokens ", facts.max_tokens, " * hidden ", facts.hidden, " * ", part_bytes, " B"),
        layout.parts.bytes(), "shared");
  }
  add("flags", text("3 * ", workers, " * ", ranks, " * 8 B"),
      layout.pull_flags.bytes() + layout.staged_flags.bytes() + layout.reduced_flags.bytes(), "shared");
  add("shared padding and fault word", "places start at multiples of 256 B",
      PeerWorkspace::memory_bytes(layout.total_bytes) - layout.control.bytes() - layout.lines.bytes() -
          layout.staging.bytes() - layout.results.bytes() - layout.parts.bytes() - layout.pull_flags.bytes() -
          layout.staged_flags.bytes() - layout.reduced_flags.bytes(),
      "shared");
  const char* const own = device.is_host ? "host, ranks" : "device, ranks";
  add("epochs and digest",
      text("(", TensorParallelEpochs::kItems, " + items ", layout.num_items, ") * 8 B + ", sizeof(RoutingDigest), " B"),
      PrivateLayout::of(layout).total_bytes, own);
}

}  // namespace moelink
