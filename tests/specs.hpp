// The specs of the local kernels for the shapes that tests and perf tools run: one list, compiled for GPUs without one
// by tests/jit/every_spec_test.cpp. A test that needs a spec of a new kind adds it here, so that nothing is right on
// the host alone that would spill, or not compile, on a GPU. A new kernel: a function that lists its specs here, or
// whatever asks a KernelLoader for them, and a line in every_request of that test.
#pragma once

#include <vector>

#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/nvlink_moe.hpp"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink::test {

/// One mixture-of-experts layer.
struct MoeShape {
  const char* name;
  i64 hidden;
  i32 num_experts;
  i32 top_k;
};

/// Models that differ in what the compiler sees: the number of experts hardly matters to it, rows and top-k do.
inline constexpr MoeShape kModelShapes[] = {
    {"qwen3-30b-a3b", 2048, 128, 8},     {"deepseek-v3", 7168, 256, 8},      {"gpt-oss-120b", 2880, 128, 4},
    {"kimi-k3", 3584, 896, 16},          {"llama-4-maverick", 5120, 128, 1}, {"qwen3-next", 2048, 512, 10},
    {"nemotron-3-super", 1024, 512, 22}, {"nemotron-3-nano", 2688, 128, 6},
};
inline constexpr MoeShape kDeepSeek = kModelShapes[1];

/// Where other libraries failed: top-k outside a compiled set, experts at block sizes, rows that no vector divides.
inline constexpr MoeShape kOddShapes[] = {
    {"one of everything", 8, 1, 1},     {"k=3", 1024, 60, 3}, {"k=7", 72, 7, 7}, {"E past a block", 256, 1025, 32},
    {"most experts", 14336, 16384, 32},
};

/// Dispatch: every shape in bf16, and every kind of payload once. Without block sizes: with_threads (local_plan.hpp).
inline std::vector<LocalDispatchSpec> dispatch_specs() {
  std::vector<LocalDispatchSpec> specs;
  const auto add = [&](const MoeShape& shape, i64 row_bytes, i32 scale_bytes, Element weighted) {
    specs.push_back({.row_bytes = row_bytes,
                     .scale_bytes = scale_bytes,
                     .num_experts = shape.num_experts,
                     .top_k = shape.top_k,
                     .threads = 0,
                     .weighted = weighted});
  };
  for (const MoeShape& shape : kModelShapes) {
    add(shape, shape.hidden * 2, 0, Element::none);
  }
  for (const MoeShape& shape : kOddShapes) {
    add(shape, shape.hidden * 2, 0, Element::none);
  }
  constexpr i64 kHidden = kDeepSeek.hidden;
  add(kDeepSeek, kHidden * 2, 0, Element::bfloat16);
  add(kDeepSeek, kHidden * 4, 0, Element::float32);
  add(kDeepSeek, kHidden, kHidden / 128 * 4, Element::none);  // fp8, an fp32 scale for 128 elements
  add(kDeepSeek, kHidden / 2, kHidden / 16, Element::none);   // fp4, an fp8 scale for 16 elements
  add(kDeepSeek, kHidden, 4, Element::none);                  // fp8, one scale for a row
  add(kDeepSeek, kHidden, 6, Element::none);                  // scales that only 2 divides
  add(kDeepSeek, kHidden, 63, Element::none);                 // scales that nothing divides
  add({"k=5", 2048, 60, 5}, 4096, 16, Element::float16);
  specs.push_back(specs.front());
  specs.back().is_part = true;  // replicated inputs
  return specs;
}

/// Dispatch over NVLink: every kind of payload and of group, models over 8 ranks. Without block sizes.
inline std::vector<NvlinkDispatchSpec> nvlink_dispatch_specs() {
  std::vector<NvlinkDispatchSpec> specs;
  const auto add = [&](const LocalDispatchSpec& local, i32 num_ranks, i32 tp_size) {
    specs.push_back({.row_bytes = local.row_bytes,
                     .scale_bytes = local.scale_bytes,
                     .num_ranks = num_ranks,
                     .tp_size = tp_size,
                     .num_experts = local.num_experts,
                     .top_k = local.top_k,
                     .threads = 0,
                     .weighted = local.weighted});
  };
  for (const LocalDispatchSpec& local : dispatch_specs()) add(local, 8, 1);
  const LocalDispatchSpec deep_seek = dispatch_specs()[1];
  for (const i32 num_ranks : {1, 2, 3, 18, 72}) add(deep_seek, num_ranks, 1);
  add(deep_seek, 8, 2);
  add(deep_seek, 6, 3);
  for (const i32 num_ranks : {2, 64}) {
    add(deep_seek, num_ranks, 1);
    specs.back().has_remotes = true;
  }
  // The one whose lanes once lost each other on a GPU (docs/decisions/0018-convergence-barriers-are-few.md).
  add({.row_bytes = 2064, .scale_bytes = 0, .num_experts = 24, .top_k = 4, .threads = 0}, 4, 1);
  specs.back().has_remotes = true;
  return specs;
}

/// Dispatch that quantises its tokens: every format. Without block sizes, too.
inline std::vector<LocalDispatchSpec> quantizing_specs() {
  std::vector<LocalDispatchSpec> specs;
  for (const QuantFormat format :
       {QuantFormat::fp8, QuantFormat::fp8_pow2, QuantFormat::mxfp8, QuantFormat::mxfp4, QuantFormat::nvfp4}) {
    for (const MoeShape& shape : {kDeepSeek, kModelShapes[2]}) {
      specs.push_back({.row_bytes = quant_bytes(format, shape.hidden),
                       .scale_bytes = static_cast<i32>(quant_scale_bytes(format, shape.hidden)),
                       .num_experts = shape.num_experts,
                       .top_k = shape.top_k,
                       .quantize = format,
                       .input = shape.hidden == kDeepSeek.hidden ? Element::bfloat16 : Element::float16});
    }
  }
  return specs;
}

/// The same over NVLink: each kind of element and of scale.
inline std::vector<NvlinkDispatchSpec> nvlink_quantizing_specs() {
  std::vector<NvlinkDispatchSpec> specs;
  for (const LocalDispatchSpec& local : quantizing_specs()) {
    if (local.input != Element::bfloat16 || local.quantize == QuantFormat::fp8_pow2) continue;
    specs.push_back({.row_bytes = local.row_bytes,
                     .scale_bytes = local.scale_bytes,
                     .num_ranks = 8,
                     .tp_size = 1,
                     .num_experts = local.num_experts,
                     .top_k = local.top_k,
                     .threads = 0,
                     .quantize = local.quantize,
                     .input = local.input});
  }
  return specs;
}

/// Combine: every shape in bf16, and every pair of types once. Without block sizes, too.
inline std::vector<LocalCombineSpec> combine_specs() {
  std::vector<LocalCombineSpec> specs;
  const auto add = [&](const MoeShape& shape, Element input, Element output) {
    specs.push_back({.hidden = shape.hidden, .top_k = shape.top_k, .input = input, .output = output});
  };
  for (const MoeShape& shape : kModelShapes) {
    add(shape, Element::bfloat16, Element::bfloat16);
  }
  for (const MoeShape& shape : kOddShapes) {
    add(shape, Element::bfloat16, Element::bfloat16);
  }
  constexpr Element kTypes[] = {Element::bfloat16, Element::float16, Element::float32};
  for (const Element input : kTypes) {
    for (const Element output : kTypes) {
      add(kDeepSeek, input, output);
    }
  }
  add({"three vectors", 12, 1, 32}, Element::float32, Element::float32);
  for (const i32 top_k : {2, 5}) add({"few experts", 7168, 8, top_k}, Element::bfloat16, Element::bfloat16);
  return specs;
}

inline NvlinkCombineSpec nvlink_combine_spec(const MoeShape& shape, i32 num_ranks, i32 tp_size, Element input,
                                             Element partial, Element output) {
  return {.hidden = shape.hidden,
          .num_ranks = num_ranks,
          .tp_size = tp_size,
          .top_k = shape.top_k,
          .input = input,
          .partial = partial,
          .output = output};
}

/// Combine over ranks: every model on two ranks, every kind of partial and output, and groups. Without block sizes,
/// too.
inline std::vector<NvlinkCombineSpec> nvlink_combine_specs() {
  std::vector<NvlinkCombineSpec> specs;
  const auto add = [&](const MoeShape& shape, i32 num_ranks, i32 tp_size, Element input, Element partial,
                       Element output) {
    specs.push_back(nvlink_combine_spec(shape, num_ranks, tp_size, input, partial, output));
  };
  constexpr Element kBf16 = Element::bfloat16;
  constexpr Element kFp32 = Element::float32;
  for (const MoeShape& shape : kModelShapes) {
    add(shape, 2, 1, kBf16, kBf16, kBf16);
  }
  for (const i32 num_ranks : {1, 4, 8, 64}) {
    add(kDeepSeek, num_ranks, 1, kBf16, kBf16, kBf16);
  }
  add(kDeepSeek, 2, 2, kBf16, kBf16, kBf16);
  add(kDeepSeek, 8, 4, kBf16, kFp32, kBf16);
  add(kDeepSeek, 2, 1, kBf16, kFp32, kBf16);
  add(kDeepSeek, 8, 1, kBf16, kFp32, kFp32);
  add(kDeepSeek, 2, 1, Element::float16, Element::float16, kFp32);
  add(kDeepSeek, 8, 2, kFp32, kFp32, kFp32);
  add({"most ranks and rows", 256, 1025, 32}, 64, 2, kBf16, kBf16, kFp32);
  add({"three vectors", 12, 1, 32}, 3, 1, kFp32, kFp32, kFp32);
  for (const i32 num_ranks : {2, 64}) {
    add(kDeepSeek, num_ranks, 1, kBf16, kBf16, kBf16);
    specs.back().has_remotes = true;
  }
  return specs;
}

/// Combine of many tokens over ranks: rows of several models, few and many ranks, every kind of partial and output.
inline std::vector<NvlinkCombineSpec> nvlink_combine_many_specs() {
  std::vector<NvlinkCombineSpec> specs;
  const auto add = [&](const MoeShape& shape, i32 num_ranks, Element input, Element partial, Element output) {
    specs.push_back(nvlink_combine_spec(shape, num_ranks, 1, input, partial, output));
  };
  constexpr Element kBf16 = Element::bfloat16;
  constexpr Element kFp32 = Element::float32;
  add(kDeepSeek, 2, kBf16, kBf16, kBf16);
  add(kDeepSeek, 8, kBf16, kFp32, kFp32);
  add(kDeepSeek, 2, Element::float16, Element::float16, kFp32);
  add({"rows of 4 KB", 2048, 128, 8}, 8, kBf16, kBf16, kBf16);
  add({"parts that are not alike", 2880, 128, 4}, 2, kBf16, kBf16, kBf16);
  add({"most ranks and rows", 1024, 1025, 32}, 32, kFp32, kFp32, kFp32);
  return specs;
}

/// Tensor-parallel combine: rows of models and odd ones, small and large groups, every kind of kernel, parts that are
/// rounded and that are not. Without block sizes: they follow from the plan.
inline std::vector<TensorParallelSpec> tensor_parallel_specs() {
  std::vector<TensorParallelSpec> specs;
  const auto add = [&](const MoeShape& shape, i32 num_ranks, Element input, Element part, Element output) {
    for (const bool two_shot : {false, true}) {
      specs.push_back({.hidden = shape.hidden,
                       .top_k = shape.top_k,
                       .num_ranks = num_ranks,
                       .threads = 0,
                       .input = input,
                       .part = part,
                       .output = output,
                       .two_shot = two_shot});
    }
  };
  constexpr Element kBf16 = Element::bfloat16;
  constexpr Element kFp32 = Element::float32;
  add(kDeepSeek, 2, kBf16, kBf16, kBf16);
  add(kDeepSeek, 8, kBf16, kBf16, kBf16);
  add(kDeepSeek, 2, kFp32, kFp32, Element::float16);
  add(kOddShapes[4], 3, kBf16, kFp32, kBf16);  // top-k 32
  add({"fours", 12, 1, 32}, 20, kFp32, kFp32, kFp32);
  specs.push_back(specs[1]);
  specs.back().multicast = true;
  return specs;
}

}  // namespace moelink::test
