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

/// Rows behind each other, a group for each matrix: rows [offsets[e], offsets[e] + counts[e]) belong to matrix e.
struct RowGroups {
  const std::int64_t* offsets = nullptr;  ///< in device memory (ExpertBatch)
  const std::int32_t* counts = nullptr;   ///< in device memory
  /// The counts, where the host knows them: then groups lie behind each other without gaps. A GPU uses what is best for
  /// many rows with them, and what needs no host, and can be captured, without.
  std::span<const std::int32_t> host_counts = {};
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

  /// Makes ready for grouped() with weights of this shape; nothing is compiled later.
  virtual void prepare(const Weights& weights) = 0;

  /// Enqueues the products of groups of rows, each with a matrix of its own.
  virtual void grouped(const Weights& weights, const RowGroups& groups, const void* input, void* output,
                       StreamView stream) = 0;
};

}  // namespace moelink::engine
