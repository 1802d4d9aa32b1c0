// From tensors to weights in device memory: the slices that a rank needs, and nothing else of their files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/files/weight_source.hpp"
#include "engine/math/products.hpp"
#include "engine/model/shard.hpp"
#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"

namespace moelink::engine {

/// A matrix and the part of it that is wanted.
struct MatrixSlice {
  std::string name;
  std::int64_t num_rows = 0;  ///< of the whole matrix, as it must be found
  std::int64_t num_columns = 0;
  Range rows;  ///< wanted
  Range columns;
};

class WeightLoader {
 public:
  /// All of these live as long as the loader.
  WeightLoader(const WeightSource& source, const Products& products, Device device, DataType type);

  /// Weights to be filled.
  [[nodiscard]] Weights allocate(std::int64_t num_matrices, std::int64_t outputs, std::int64_t inputs) const {
    return products_.allocate(num_matrices, outputs, inputs);
  }
  /// Slices of one width under each other, as one of the matrices of `weights`.
  void fill(Weights& weights, std::int64_t matrix, const std::vector<MatrixSlice>& slices);
  /// The same as the only matrix of new weights.
  [[nodiscard]] Weights load(const std::vector<MatrixSlice>& slices);

  /// Elements [range) of a vector of `size` elements, in the model's type.
  [[nodiscard]] Buffer vector(const std::string& name, std::int64_t size, Range range);
  /// The largest magnitude in a vector.
  [[nodiscard]] float largest(const std::string& name, std::int64_t size);
  /// Numbers in fp32, whatever the model's type.
  [[nodiscard]] Buffer floats(std::span<const float> values) const;
  /// A whole matrix, row-major, in the model's type.
  [[nodiscard]] Buffer matrix(const std::string& name, std::int64_t num_rows, std::int64_t num_columns);

 private:
  void read(const MatrixSlice& slice, std::span<float> values) const;
  [[nodiscard]] Buffer upload(std::span<const float> values);

  const WeightSource& source_;
  const Products& products_;
  Device device_;
  DataType type_;
  Stream stream_;
  std::vector<float> values_;
};

}  // namespace moelink::engine
