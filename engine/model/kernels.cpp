#include "engine/model/kernels.hpp"

#include <algorithm>
#include <bit>
#include <thread>

#include "engine/base/text.hpp"
#include "engine/model/kernel_sources.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

// Blocks beyond these find the work done: grids are bounded, kernels go round.
constexpr std::int64_t kMaxGrid = 1 << 20;
constexpr int kRowThreads = 256;
constexpr int kHeadThreads = 128;

Element element_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return Element::float32;
    case DataType::bfloat16:
      return Element::bfloat16;
    default:
      throw Error(ErrorCode::unsupported, text("models are computed in fp32 or bf16, not in ", name_of(type)));
  }
}

void check_chunks(const char* what, std::int64_t elements, std::int64_t multiple, DataType type) {
  if (elements % multiple != 0) {
    throw Error(ErrorCode::unsupported,
                text(what, " is ", elements, "; in ", name_of(type), " it must be a multiple of ", multiple));
  }
}

QuantFormat format_of(Quantization payload) {
  switch (payload) {
    case Quantization::none:
      break;
    case Quantization::fp8:
      return QuantFormat::fp8;
    case Quantization::fp8_pow2:
      return QuantFormat::fp8_pow2;
    case Quantization::mxfp8:
      return QuantFormat::mxfp8;
    case Quantization::mxfp4:
      return QuantFormat::mxfp4;
    case Quantization::nvfp4:
      return QuantFormat::nvfp4;
  }
  return QuantFormat::none;
}

/// Rows travel in units of sixteen bytes.
void check_payload(std::int64_t hidden, QuantFormat format, Quantization payload) {
  const std::int64_t multiple = 16 * hidden / std::max<std::int64_t>(quant_bytes(format, hidden), 1);
  if (quant_bytes(format, hidden) % 16 != 0) {
    throw Error(ErrorCode::unsupported, text("hidden_size is ", hidden, "; rows quantised to ", name_of(payload),
                                             " need a multiple of ", multiple, ": use another payload, or none"));
  }
}

HeadNorm head_norm_of(QkNorm norm) {
  switch (norm) {
    case QkNorm::per_head:
      return HeadNorm::per_head;
    case QkNorm::all_heads:
      return HeadNorm::all_heads;
    case QkNorm::none:
      break;
  }
  return HeadNorm::none;
}

/// Lanes that hold a head on a GPU (HeadLanes).
i32 lanes_of_head(std::int64_t head_dim, Element element) {
  const auto chunks = static_cast<unsigned>(head_dim / chunk_width(element));
  return static_cast<i32>(std::min(std::bit_ceil(chunks), 32U));
}

/// As many query heads of a key head as fit the registers, which hold a query and a sum for each.
i32 heads_together(const Shard& shard, std::int64_t head_dim, Element element) {
  constexpr std::int64_t kMostElementsPerLane = 64;
  const std::int64_t per_lane = (head_dim + lanes_of_head(head_dim, element) - 1) / lanes_of_head(head_dim, element);
  const std::int64_t heads_per_key = shard.heads.size() / shard.kv_heads.size();
  for (std::int64_t together = heads_per_key; together > 1; --together) {
    if (heads_per_key % together == 0 && together * per_lane <= kMostElementsPerLane) {
      return static_cast<i32>(together);
    }
  }
  return 1;
}

HeadsSpec heads_spec(const ModelConfig& config, const Shard& shard, Element element, std::int64_t page_size,
                     int threads) {
  return {.head_dim = config.head_dim,
          .num_heads = static_cast<i32>(shard.heads.size()),
          .num_kv_heads = static_cast<i32>(shard.kv_heads.size()),
          .norm_query_elements = config.num_heads * config.head_dim,
          .norm_key_elements = config.num_kv_heads * config.head_dim,
          .page_size = static_cast<i32>(page_size),
          .threads = threads,
          .heads_together = heads_together(shard, config.head_dim, element),
          .epsilon_bits = std::bit_cast<u32>(config.norm_epsilon),
          .clip_bits = std::bit_cast<u32>(config.clip_qkv.value_or(0.0F)),
          .element = element,
          .norm = head_norm_of(config.qk_norm)};
}

}  // namespace

ModelKernels::Handles ModelKernels::add_all(KernelSet& set, Device device, const ModelConfig& config,
                                            const Shard& shard, const ModelTypes& types, std::int64_t page_size) {
  const DataType type = types.model;
  const Element element = element_of(type);
  const std::int64_t width = chunk_width(element);
  check_chunks("hidden_size", config.hidden, width, type);
  check_chunks("the width of an expert", config.expert_intermediate, width, type);
  check_chunks("head_dim", config.head_dim, 2 * width, type);
  if (config.head_dim > kMaxHeadDim) {
    throw Error(ErrorCode::unsupported,
                text("head_dim is ", config.head_dim, "; at most ", kMaxHeadDim, " is implemented"));
  }
  const auto threads = [&](int wanted) { return device.is_host() ? 1 : wanted; };
  const auto norm = [&](bool adds) {
    return RmsNormSpec{.hidden = config.hidden,
                       .epsilon_bits = std::bit_cast<u32>(config.norm_epsilon),
                       .threads = threads(kRowThreads),
                       .element = element,
                       .adds = adds,
                       .delta = element_of(types.block)};
  };
  const HeadsSpec heads = heads_spec(config, shard, element, page_size, threads(kHeadThreads));
  Handles handles{
      .embedding = set.add<Embedding>({.hidden = config.hidden, .threads = threads(kHeadThreads), .element = element}),
      .norm = set.add<RmsNorm>(norm(false)),
      .add_norm = set.add<RmsNorm>(norm(true)),
      .squares = {},
      .heads = set.add<PrepareHeads>(heads),
      .attention = set.add<Attention>(heads),
      .router = set.add<Router>({.num_experts = static_cast<i32>(config.num_experts),
                                 .top_k = config.top_k,
                                 .threads = threads(kHeadThreads),
                                 .normalises = config.normalise_top_k}),
      .swiglu = set.add<Swiglu>(
          {.intermediate = config.expert_intermediate, .threads = threads(kRowThreads), .element = element}),
      .dequantize = {}};
  if (const QuantFormat format = format_of(types.payload); format != QuantFormat::none) {
    check_payload(config.hidden, format, types.payload);
    handles.dequantize = set.add<Dequantize>(
        {.hidden = config.hidden, .threads = threads(kRowThreads), .format = format, .element = element});
  }
  if (heads.norm == HeadNorm::all_heads) {
    handles.squares = set.add<HeadSquares>(heads);
  }
  return handles;
}

KernelSet ModelKernels::set_for(Device device, const ModelConfig& config, const Shard& shard, const ModelTypes& types,
                                std::int64_t page_size) {
  KernelSet set(device, kernel_headers());
  (void)add_all(set, device, config, shard, types, page_size);
  return set;
}

ModelKernels::ModelKernels(Device device, const ModelConfig& config, const Shard& shard, const ModelTypes& types,
                           std::int64_t page_size)
    : on_host_(device.is_host()) {
  KernelSet set(device, kernel_headers());
  kernels_ = add_all(set, device, config, shard, types, page_size);
  set.load();
}

int ModelKernels::grid(std::int64_t items, std::int64_t items_per_block) const {
  // On the host a block is a thread of the stream: more blocks than threads are only more to hand out.
  const std::int64_t most = on_host_ ? std::thread::hardware_concurrency() : kMaxGrid;
  const std::int64_t blocks = on_host_ ? items : (items + items_per_block - 1) / items_per_block;
  return static_cast<int>(std::clamp<std::int64_t>(blocks, 1, most));
}

int ModelKernels::grid_for_at_most(std::int64_t items) const {
  // The bound is far above what most steps have: a few blocks per SM go round as often as it takes.
  constexpr std::int64_t kMostBlocks = 2048;
  return grid(std::min(items, kMostBlocks * kRowThreads), kRowThreads);
}

void ModelKernels::embed(const EmbeddingArgs& args, StreamView stream) const {
  kernels_.embedding.launch({.grid = grid(args.num_rows)}, args, stream);
}

void ModelKernels::normalise(const RmsNormArgs& args, StreamView stream) const {
  kernels_.norm.launch({.grid = grid(args.num_rows), .scratch_bytes = RmsNorm::kScratchBytes}, args, stream);
}

void ModelKernels::add_and_normalise(const RmsNormArgs& args, StreamView stream) const {
  kernels_.add_norm.launch({.grid = grid(args.num_rows), .scratch_bytes = RmsNorm::kScratchBytes}, args, stream);
}

void ModelKernels::sum_head_squares(const HeadSquaresArgs& args, StreamView stream) const {
  kernels_.squares.launch({.grid = grid(args.num_rows * 2), .scratch_bytes = HeadSquares::kScratchBytes}, args, stream);
}

void ModelKernels::prepare_heads(const PrepareHeadsArgs& args, StreamView stream) const {
  const HeadsSpec& spec = kernels_.heads.spec();
  const std::int64_t heads = args.rows.num_rows * (spec.num_heads + 2 * spec.num_kv_heads);
  kernels_.heads.launch({.grid = grid(heads, kHeadThreads / 32)}, args, stream);
}

void ModelKernels::attend(const AttentionArgs& args, StreamView stream) const {
  const HeadsSpec& spec = kernels_.attention.spec();
  const int groups = on_host_ ? 1 : kHeadThreads / lanes_of_head(spec.head_dim, spec.element);
  const std::int64_t heads = args.rows.num_rows * spec.num_heads;
  kernels_.attention.launch({.grid = grid(on_host_ ? heads : heads / spec.heads_together),
                             .scratch_bytes = Attention::scratch_bytes(spec, groups)},
                            args, stream);
}

void ModelKernels::route(const RouterArgs& args, StreamView stream) const {
  kernels_.router.launch({.grid = grid(args.num_rows, kHeadThreads / 32)}, args, stream);
}

void ModelKernels::swiglu(const SwigluArgs& args, std::int64_t max_rows, StreamView stream) const {
  const SwigluSpec& spec = kernels_.swiglu.spec();
  const std::int64_t chunks = max_rows * (spec.intermediate / chunk_width(spec.element));
  kernels_.swiglu.launch({.grid = grid_for_at_most(chunks)}, args, stream);
}

void ModelKernels::dequantize(const DequantizeArgs& args, std::int64_t max_rows, StreamView stream) const {
  const std::int64_t units = max_rows * (kernels_.dequantize.spec().hidden / Dequantize::kUnit);
  kernels_.dequantize.launch({.grid = grid_for_at_most(units)}, args, stream);
}

}  // namespace moelink::engine
