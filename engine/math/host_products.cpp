#include "engine/math/host_products.hpp"

#include <algorithm>
#include <thread>

#include "engine/math/panel.hpp"

namespace moelink::engine {
namespace {

using Multiply = void (*)(const Panel&);
Multiply best_multiply() {
#if MOELINK_ENGINE_X86
  if (__builtin_cpu_supports("avx512f")) {
    return multiply_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return multiply_avx2;
  }
#endif
  return multiply_plain;
}

}  // namespace

void HostProduct::run(const HostExec& ex, const Runtime<Spec>&, const Args& args) {
  static const Multiply kMultiply = best_multiply();
  const i64 panels = panels_of(args.outputs);
  for (i64 item = ex.block(); item < args.num_matrices * panels; item += ex.num_blocks()) {
    const i64 matrix = item / panels;
    const i64 column = item % panels * kPanelWidth;
    const i64 first = args.offsets == nullptr ? 0 : args.offsets[matrix];
    kMultiply({.weights = args.weights + item * args.inputs * kPanelWidth,
               .input = args.input + first * args.inputs,
               .output = args.output + first * args.outputs + column,
               .num_rows = args.offsets == nullptr ? args.num_rows : args.counts[matrix],
               .inputs = args.inputs,
               .output_stride = args.outputs,
               .width = std::min(kPanelWidth, args.outputs - column)});
  }
}

HostProducts::HostProducts() {
  KernelSet kernels(Device::host(), {});
  product_ = kernels.add<HostProduct>({});
  kernels.load();
}

Weights HostProducts::allocate(std::int64_t num_matrices, std::int64_t outputs, std::int64_t inputs) const {
  const std::int64_t elements = num_matrices * HostProduct::panels_of(outputs) * kPanelWidth * inputs;
  return {.num_matrices = num_matrices,
          .outputs = outputs,
          .inputs = inputs,
          .data = Buffer(Device::host(), static_cast<std::size_t>(elements) * sizeof(float))};
}

void HostProducts::fill(Weights& weights, std::int64_t matrix, std::span<const float> values) const {
  const std::int64_t panels = HostProduct::panels_of(weights.outputs);
  float* panel = weights.data.as<float>() + matrix * panels * kPanelWidth * weights.inputs;
  for (std::int64_t column = 0; column < panels * kPanelWidth; ++column) {
    float* target = panel + column / kPanelWidth * kPanelWidth * weights.inputs + column % kPanelWidth;
    for (std::int64_t j = 0; j < weights.inputs; ++j) {
      target[j * kPanelWidth] =
          column < weights.outputs ? values[static_cast<std::size_t>(column * weights.inputs + j)] : 0.0F;
    }
  }
}

void HostProducts::dense(const Weights& weights, const void* input, std::int64_t num_rows, void* output, DataType,
                         StreamView stream) {
  launch({.weights = weights.data.as<float>(),
          .input = static_cast<const float*>(input),
          .output = static_cast<float*>(output),
          .num_matrices = 1,
          .outputs = weights.outputs,
          .inputs = weights.inputs,
          .num_rows = num_rows,
          .offsets = nullptr,
          .counts = nullptr},
         stream);
}

void HostProducts::grouped(const Weights& weights, const RowGroups& groups, const void* input, void* output,
                           StreamView stream) {
  launch({.weights = weights.data.as<float>(),
          .input = static_cast<const float*>(input),
          .output = static_cast<float*>(output),
          .num_matrices = weights.num_matrices,
          .outputs = weights.outputs,
          .inputs = weights.inputs,
          .num_rows = 0,
          .offsets = groups.offsets,
          .counts = groups.counts},
         stream);
}

void HostProducts::launch(const HostProductArgs& args, StreamView stream) const {
  const i64 panels = args.num_matrices * HostProduct::panels_of(args.outputs);
  if (panels == 0 || (args.offsets == nullptr && args.num_rows == 0)) {
    return;
  }
  product_.launch({.grid = static_cast<int>(std::min<i64>(panels, std::thread::hardware_concurrency()))}, args, stream);
}

}  // namespace moelink::engine
