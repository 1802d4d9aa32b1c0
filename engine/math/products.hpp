// Products with weights: output[row, i] = sum over j of input[row, j] * weight[i, j], in fp32. The one part of the model
// that the host and GPUs do by different means.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"

namespace moelink::engine {

/// One or more weight matrices of one shape [outputs, inputs] in device memory, in the form that products want.
struct Weights {
  std::int64_t num_matrices = 1;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  Buffer data;
};

/// All rows are dense, of the model's type. Outputs may not overlap inputs. Not for several threads at once.
class Products {
 public:
  /// The products of a device, for weights and rows of `type`. Throws ErrorCode::unsupported for types it does not have.
  [[nodiscard]] static std::unique_ptr<Products> make(Device device, DataType type);

  Products() = default;
  virtual ~Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  [[nodiscard]] virtual Weights allocate(std::int64_t num_matrices, std::int64_t outputs,
                                         std::int64_t inputs) const = 0;
  /// Fills one matrix from [outputs, inputs], row-major. Returns when it is done.
  virtual void fill(Weights& weights, std::int64_t matrix, std::span<const float> values) const = 0;

  /// Enqueues output[num_rows, outputs] = input[num_rows, inputs] * weights. A row's bits depend on that row alone.
  /// `output_type` is the model's type or float32.
  virtual void dense(const Weights& weights, const void* input, std::int64_t num_rows, void* output,
                     DataType output_type, StreamView stream) = 0;

  /// Enqueues the products of groups of rows, each with a matrix of its own: rows [offsets[e], offsets[e] + counts[e])
  /// with matrix e. `offsets` and `counts` are in device memory (ExpertBatch); at most `max_rows` rows in all.
  virtual void grouped(const Weights& weights, const void* input, const std::int64_t* offsets,
                       const std::int32_t* counts, std::int64_t max_rows, void* output, StreamView stream) = 0;
};

}  // namespace moelink::engine
