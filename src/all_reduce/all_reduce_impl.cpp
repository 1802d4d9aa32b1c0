#include "all_reduce/all_reduce_impl.hpp"

#include <algorithm>

#include "all_reduce/check.hpp"
#include "all_reduce/place.hpp"
#include "base/environment.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Blocks of a staged launch on the host: few, with long chunks; its threads run them.
constexpr int kHostBlocks = 8;

Element agreed_element(const Communicator& communicator, const AllReduceConfig& config) {
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  Element element = Element::none;
  agree_over_ranks(
      bootstrap, "AllReduce: configuration", [&] { element = check_config(config); }, communicator.deadline());
  compare_over_ranks(bootstrap, "AllReduce",
                     {{"type", std::string(name_of(config.type))},
                      {"max_elements", std::to_string(config.max_elements)},
                      {"deterministic", config.deterministic ? "true" : "false"},
                      {"algorithm", std::string(name_of(config.algorithm))}},
                     communicator.deadline());
  return element;
}

/// Blocks that may wait at once.
struct BlockShares {
  int push = 0;
  int pack = 0;  ///< 0: forbidden
  int staged = 0;
};

/// Blocks per SM, of which one kernel's wait at a time.
struct BlocksPerSm {
  int push = 1;
  int pack = 1;
  int staged = 1;
};

/// What this rank can have waiting.
BlockShares shares_of(const Communicator& communicator, const BlocksPerSm& per_sm) {
  const int most_pack = Environment::get().pack ? kMaxPackBlocks : 0;
  if (communicator.device().is_host()) {
    return {.push = kMaxPushBlocks, .pack = most_pack, .staged = kHostBlocks};
  }
  return {.push = std::min(kMaxPushBlocks, fair_share_of_blocks(communicator, per_sm.push)),
          .pack = std::min(most_pack, fair_share_of_blocks(communicator, per_sm.pack)),
          .staged = std::min(kMaxStagedBlocks, fair_share_of_blocks(communicator, per_sm.staged))};
}

/// What every rank can have waiting.
BlockShares agreed_shares(const Communicator& communicator, const BlockShares& mine) {
  BlockShares agreed = mine;
  for (const BlockShares& other :
       all_gather_value(*communicator.state().bootstrap, "AllReduce: blocks", mine, communicator.deadline())) {
    agreed.push = std::min(agreed.push, other.push);
    agreed.pack = std::min(agreed.pack, other.pack);
    agreed.staged = std::min(agreed.staged, other.staged);
  }
  return agreed;
}

i64 shared_bytes(Element element, int num_ranks) {
  return AllReduceLayout::of(stream_spec(element, num_ranks)).total_bytes;
}

Buffer zeroed(Device device, std::size_t size_bytes) {
  Buffer buffer(device, size_bytes);
  const Stream stream(device, {.num_threads = 1});
  fill_bytes(buffer.data(), 0, size_bytes, stream);
  stream.synchronize();
  return buffer;
}

}  // namespace

AllReduce::Impl::Impl(const Communicator& communicator, const AllReduceConfig& config)
    : communicator_(communicator), config_(config) {
  facts_.element = agreed_element(communicator, config);
  check_place(communicator.topology(), config.algorithm);
  if (uses_nccl(communicator.topology(), config.algorithm)) {
    nccl_ = std::make_unique<NcclAllReduce>(communicator, config);
  } else {
    set_up_kernels();
  }
}

void AllReduce::Impl::set_up_kernels() {
  const Communicator& communicator = communicator_;
  const AllReduceConfig& config = config_;
  facts_.num_ranks = communicator.size();
  facts_.only = config.algorithm;
  facts_.on_host = communicator.device().is_host();
  workspace_ =
      std::make_unique<PeerWorkspace>(communicator, "AllReduce", shared_bytes(facts_.element, facts_.num_ranks),
                                      may_use_nvls(config) ? Multicast::if_possible : Multicast::no);
  facts_.multicast = workspace_->window().multicast != nullptr;  // the same on every rank of a node
  check_nvls(config, workspace_->why_no_multicast());
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  std::string why_not_pack = why_no_pack(communicator.topology());
  BlocksPerSm per_sm;
  BlockShares shares;
  agree_over_ranks(
      bootstrap, "AllReduce: kernels",
      [&] {
        KernelLoader loader(communicator.device());
        kernels_ = AllReduceKernels::add_to(loader, facts_.element, facts_.num_ranks, facts_.multicast);
        loader.load();
        per_sm.push = kernels_.push.max_blocks_per_sm(0);
        per_sm.pack = kernels_.has_pack ? kernels_.pack.max_blocks_per_sm(0) : 1;
        per_sm.staged = kernels_.staged_blocks_per_sm();
        shares = shares_of(communicator, per_sm);
      },
      communicator.deadline());
  shares = agreed_shares(communicator, shares);
  if (why_not_pack.empty() && shares.pack == 0) {
    why_not_pack = "a rank forbids it (MOELINK_PACK=0)";
  }
  check_pack(config, why_not_pack);
  facts_.max_push_blocks = shares.push;
  facts_.max_pack_blocks = why_not_pack.empty() ? shares.pack : 0;
  facts_.max_staged_blocks = shares.staged;
  agree_over_ranks(
      bootstrap, "AllReduce: budget",
      [&] {
        check_lines_alone(config, facts_);
        residency_ = ResidencyClaim(communicator, "AllReduce",
                                    {{facts_.max_push_blocks, per_sm.push},
                                     {facts_.max_pack_blocks, per_sm.pack},
                                     {facts_.max_staged_blocks, per_sm.staged}});
        epochs_ = zeroed(communicator.device(), AllReduceEpochs::kNumWords * sizeof(u64));
      },
      communicator.deadline());
}

MemoryReport AllReduce::Impl::memory_of(const Communicator& communicator, const AllReduceConfig& config) {
  const Element element = check_config(config);
  check_place(communicator.topology(), config.algorithm);
  if (uses_nccl(communicator.topology(), config.algorithm)) {
    return {.items = {{"NCCL", "what NCCL takes for itself is not known beforehand", 0, "device"}}};
  }
  const AllReduceLayout layout = AllReduceLayout::of(stream_spec(element, communicator.size()));
  const std::string ranks = text(communicator.size(), " ranks");
  const std::string slots = text(kMaxStagedBlocks, " blocks * ", kSlotBytes, " B");
  return {
      .items = {
          {"push lines", text("2 parities * ", ranks, " * ", kMaxPushBlocks, " blocks * ", kPushSliceBytes, " B * 2"),
           layout.push_lines.bytes(), "shared"},
          {"pack lines",
           layout.pack_lines.bytes() == 0
               ? std::string("none: not two ranks")
               : text("2 parities * ", kMaxPackBlocks, " blocks * ", kPackSlotBytes, " B * 4 / 3"),
           layout.pack_lines.bytes(), "shared"},
          {"stream staging",
           text(kStreamSlots, " slots * ", communicator.size() - 1, " other ranks * ", kMaxStagedBlocks, " blocks * ",
                stream_slot_bytes(communicator.size()), " B"),
           layout.stream_staging.bytes(), "shared"},
          {"two-shot staging", slots, layout.two_shot_staging.bytes(), "shared"},
          {"two-shot results", slots, layout.two_shot_results.bytes(), "shared"},
          {"flags", text("3 * ", kMaxStagedBlocks, " blocks * ", ranks, " * 8 B"),
           layout.stream_flags.bytes() + layout.staged_flags.bytes() + layout.reduced_flags.bytes(), "shared"},
          {"epochs", text(AllReduceEpochs::kNumWords, " * 8 B"), AllReduceEpochs::kNumWords * i64{sizeof(u64)},
           "device"},
          {"fault record", "1", sizeof(FaultRecord), "pinned host"}}};
}

void AllReduce::Impl::run(const AllReduceArgs& args, StreamView stream) {
  check_call(args, config_);
  check();
  if (args.num_elements == 0) {
    return;
  }
  if (nccl_ != nullptr) {
    return nccl_->run(args, stream);
  }
  const AllReducePlan plan = plan_all_reduce(facts_, args.num_elements);
  launch(plan,
         {.input = args.input,
          .output = args.output,
          .num_elements = args.num_elements,
          .length_key = length_key(args.num_elements),
          .num_steps = plan.num_steps,
          .chunk_vectors = plan.chunk_vectors,
          .window = workspace_->window(),
          .block_epochs = epochs_.as<u64>(),
          .fault = workspace_->fault_context()},
         stream);
}

void AllReduce::Impl::launch(const AllReducePlan& plan, const AllReduceKernelArgs& args, StreamView stream) const {
  const LaunchShape shape{.grid = plan.grid};
  switch (plan.algorithm) {
    case AllReduceAlgorithm::push:
      return kernels_.push.launch(shape, args, stream);
    case AllReduceAlgorithm::pack:
      return kernels_.pack.launch(shape, args, stream);
    case AllReduceAlgorithm::stream:
      return kernels_.stream.launch({.grid = plan.grid, .scratch_bytes = sizeof(StreamScratch)}, args, stream);
    case AllReduceAlgorithm::two_shot:
      return kernels_.two_shot.launch(shape, args, stream);
    case AllReduceAlgorithm::nvls:
      return kernels_.nvls.launch(shape, args, stream);
    case AllReduceAlgorithm::nccl:
    case AllReduceAlgorithm::automatic:
      break;
  }
  throw Error(ErrorCode::unsupported, text("all-reduce by ", name_of(plan.algorithm), " is not available here"));
}

void AllReduce::Impl::check() {
  if (nccl_ != nullptr) {
    return nccl_->check();
  }
  workspace_->check();
}

std::string AllReduce::Impl::describe_plan(i64 num_elements) const {
  check_num_elements(num_elements, config_);
  if (nccl_ != nullptr) {
    return num_elements == 0 ? "nothing" : nccl_->describe();
  }
  return text(num_elements == 0 ? "nothing" : to_string(plan_all_reduce(facts_, num_elements)),
              " memory=", name_of(workspace_->memory_kind()));
}

}  // namespace moelink
