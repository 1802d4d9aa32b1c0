#include "engine/math/host_products.hpp"

#include <algorithm>
#include <thread>

#include "engine/base/text.hpp"
#include "engine/math/panel.hpp"
#include "moelink/device/primitives/convert.cuh"
#include "moelink/error.hpp"

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

Element element_of_product(DataType type) { return type == DataType::float32 ? Element::float32 : Element::bfloat16; }

/// Rows in bf16: made floats, multiplied, and made what the output has.
void multiply_narrow(Multiply multiply, Panel panel, const HostProductArgs& args, i64 first_row, i64 column,
                     float* scratch) {
  const i64 last_row = first_row + panel.num_rows;
  float* const sums = scratch + HostProduct::kRowsTogether * args.inputs;
  panel.input = scratch;
  panel.output = sums;
  panel.output_stride = kPanelWidth;
  for (i64 row = first_row; row < last_row; row += panel.num_rows) {
    panel.num_rows = std::min(HostProduct::kRowsTogether, last_row - row);
    const u16* input = static_cast<const u16*>(args.input) + row * args.inputs;
    std::transform(input, input + panel.num_rows * args.inputs, scratch, float_from_bf16);
    multiply(panel);
    for (i64 r = 0; r < panel.num_rows; ++r) {
      const float* from = sums + r * kPanelWidth;
      const i64 place = (row + r) * args.outputs + column;
      if (args.output_type == Element::float32) {
        std::copy(from, from + panel.width, static_cast<float*>(args.output) + place);
      } else {
        std::transform(from, from + panel.width, static_cast<u16*>(args.output) + place, bf16_from_float);
      }
    }
  }
}

}  // namespace

void HostProduct::run(const HostExec& ex, const Runtime<Spec>& spec, const Args& args) {
  static const Multiply kMultiply = best_multiply();
  const i64 panels = panels_of(args.outputs);
  for (i64 item = ex.block(); item < args.num_matrices * panels; item += ex.num_blocks()) {
    const i64 matrix = item / panels;
    const i64 column = item % panels * kPanelWidth;
    const i64 first = args.offsets == nullptr ? 0 : args.offsets[matrix];
    const i64 num_rows = args.offsets == nullptr ? args.num_rows : args.counts[matrix];
    const Panel panel{.weights = args.weights + item * args.inputs * kPanelWidth,
                      .input = static_cast<const float*>(args.input) + first * args.inputs,
                      .output = static_cast<float*>(args.output) + first * args.outputs + column,
                      .num_rows = num_rows,
                      .inputs = args.inputs,
                      .output_stride = args.outputs,
                      .width = std::min(kPanelWidth, args.outputs - column)};
    if (spec().element == Element::float32) {
      kMultiply(panel);
    } else {
      multiply_narrow(kMultiply, panel, args, first, column, static_cast<float*>(ex.scratch()));
    }
  }
}

HostProducts::HostProducts(DataType type) : type_(type) {
  if (type != DataType::float32 && type != DataType::bfloat16) {
    throw Error(ErrorCode::unsupported,
                text("products on the host are in fp32 or bf16; ", name_of(type), " was asked for"));
  }
  KernelSet kernels(Device::host(), {});
  product_ = kernels.add<HostProduct>({.element = element_of_product(type)});
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
  const auto rounded = [&](float value) {
    return type_ == DataType::float32 ? value : float_from_bf16(bf16_from_float(value));
  };
  float* panel = weights.data.as<float>() + matrix * panels * kPanelWidth * weights.inputs;
  for (std::int64_t column = 0; column < panels * kPanelWidth; ++column) {
    float* target = panel + column / kPanelWidth * kPanelWidth * weights.inputs + column % kPanelWidth;
    for (std::int64_t j = 0; j < weights.inputs; ++j) {
      target[j * kPanelWidth] =
          column < weights.outputs ? rounded(values[static_cast<std::size_t>(column * weights.inputs + j)]) : 0.0F;
    }
  }
}

void HostProducts::dense(const Weights& weights, const void* input, std::int64_t num_rows, void* output,
                         DataType output_type, StreamView stream) {
  launch({.weights = weights.data.as<float>(),
          .input = input,
          .output = output,
          .output_type = element_of_product(output_type),
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
          .input = input,
          .output = output,
          .output_type = element_of_product(type_),
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
  product_.launch({.grid = static_cast<int>(std::min<i64>(panels, std::thread::hardware_concurrency())),
                   .scratch_bytes = HostProduct::scratch_bytes(product_.spec(), args.inputs)},
                  args, stream);
}

}  // namespace moelink::engine
