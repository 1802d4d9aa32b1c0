#include "engine/math/cuda_products.hpp"

#if MOELINK_ENGINE_CUDA

#include <algorithm>

#include "engine/base/text.hpp"
#include "engine/files/element_convert.hpp"
#include "engine/model/kernel_sources.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr int kThreads = 256;

}  // namespace

CudaProducts::CudaProducts(Device device, DataType type)
    : device_(device), type_(type), uploads_(device), cublas_(device, type) {
  if (type != DataType::float32 && type != DataType::bfloat16) {
    throw Error(ErrorCode::unsupported,
                text("products on a GPU are in fp32 or bf16; ", name_of(type), " was asked for"));
  }
}

Weights CudaProducts::allocate(std::int64_t num_matrices, std::int64_t outputs, std::int64_t inputs) const {
  const auto elements = static_cast<std::size_t>(num_matrices * outputs * inputs);
  return {.num_matrices = num_matrices,
          .outputs = outputs,
          .inputs = inputs,
          .data = Buffer(device_, elements * size_of(type_))};
}

void CudaProducts::fill(Weights& weights, std::int64_t matrix, std::span<const float> values) const {
  const std::size_t bytes = values.size() * size_of(type_);
  std::byte* target = weights.data.as<std::byte>() + static_cast<std::size_t>(matrix) * bytes;
  if (type_ == DataType::float32) {
    copy_bytes(target, values.data(), bytes, uploads_);
    uploads_.synchronize();
    return;
  }
  std::vector<std::uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), bfloat16_of);
  copy_bytes(target, rounded.data(), bytes, uploads_);
  uploads_.synchronize();
}

void CudaProducts::prepare(const Weights& weights) {
  const std::pair shape(weights.outputs, weights.inputs);
  if (few_rows_.contains(shape)) {
    return;
  }
  KernelSet kernels(device_, kernel_headers());
  few_rows_[shape] =
      kernels.add<FewRows>({.inputs = weights.inputs,
                            .outputs = weights.outputs,
                            .threads = kThreads,
                            .element = type_ == DataType::float32 ? Element::float32 : Element::bfloat16});
  kernels.load();
}

void CudaProducts::dense(const Weights& weights, const void* input, std::int64_t num_rows, void* output,
                         DataType output_type, StreamView stream) {
  cublas_.gemm({.weights = weights.data.data(),
                .input = input,
                .output = output,
                .num_rows = static_cast<std::int32_t>(num_rows)},
               weights.outputs, weights.inputs, output_type, stream);
}

void CudaProducts::grouped(const Weights& weights, const RowGroups& groups, const void* input, void* output,
                           StreamView stream) {
  if (groups.host_counts.empty()) {
    const i64 outputs_per_block = kThreads / 32 * FewRows::kOutputs;
    const i64 blocks = weights.num_matrices * ceil_div<i64>(weights.outputs, outputs_per_block);
    few_rows_.at({weights.outputs, weights.inputs})
        .launch({.grid = static_cast<int>(std::clamp<i64>(blocks, 1, 1 << 20))},
                {.weights = weights.data.data(),
                 .input = input,
                 .output = output,
                 .offsets = groups.offsets,
                 .counts = groups.counts,
                 .num_matrices = weights.num_matrices},
                stream);
    return;
  }
  std::vector<ProductGroup> products;
  std::int64_t row = 0;
  const auto element = static_cast<std::int64_t>(size_of(type_));
  for (std::size_t e = 0; e < groups.host_counts.size(); ++e) {
    if (const std::int32_t count = groups.host_counts[e]; count > 0) {
      const std::int64_t matrix = static_cast<std::int64_t>(e) * weights.outputs * weights.inputs;
      products.push_back({.weights = weights.data.as<std::byte>() + matrix * element,
                          .input = static_cast<const std::byte*>(input) + row * weights.inputs * element,
                          .output = static_cast<std::byte*>(output) + row * weights.outputs * element,
                          .num_rows = count});
      row += count;
    }
  }
  cublas_.grouped_gemm(products, weights.outputs, weights.inputs, stream);
}

}  // namespace moelink::engine

#endif
