// Products on a GPU: cuBLAS, and a kernel of our own where the groups have few rows.
#pragma once

#if MOELINK_ENGINE_CUDA

#include <map>
#include <utility>
#include <vector>

#include "engine/kernels/few_rows.cuh"
#include "engine/math/cublas.hpp"
#include "engine/math/products.hpp"
#include "moelink/kernel.hpp"

namespace moelink::engine {

/// Weights are row-major, in the model's type.
class CudaProducts final : public Products {
 public:
  CudaProducts(Device device, DataType type);

  [[nodiscard]] Weights allocate(std::int64_t num_matrices, std::int64_t outputs, std::int64_t inputs) const override;
  void fill(Weights& weights, std::int64_t matrix, std::span<const float> values) const override;
  void prepare(const Weights& weights) override;
  void dense(const Weights& weights, const void* input, std::int64_t num_rows, void* output, DataType output_type,
             StreamView stream) override;
  void grouped(const Weights& weights, const RowGroups& groups, const void* input, void* output,
               StreamView stream) override;

 private:
  Device device_;
  DataType type_;
  Stream uploads_;
  Cublas cublas_;
  std::map<std::pair<std::int64_t, std::int64_t>, UserKernel<FewRows>> few_rows_;  ///< by outputs and inputs
};

}  // namespace moelink::engine

#endif
