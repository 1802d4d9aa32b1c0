#include "engine/model/weight_loader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/files/element_convert.hpp"

namespace moelink::engine {

WeightLoader::WeightLoader(const WeightSource& source, const Products& products, Device device, DataType type)
    : source_(source), products_(products), device_(device), type_(type), stream_(device) {}

void WeightLoader::read(const MatrixSlice& slice, std::span<float> values) const {
  const std::array shape{slice.num_rows, slice.num_columns};
  const auto width = static_cast<std::size_t>(slice.columns.size());
  if (slice.columns.size() == slice.num_columns) {
    source_.read(slice.name, shape, slice.rows.begin * slice.num_columns, values);
    return;
  }
  for (std::int64_t row = slice.rows.begin; row < slice.rows.end; ++row) {
    source_.read(slice.name, shape, row * slice.num_columns + slice.columns.begin, values.first(width));
    values = values.subspan(width);
  }
}

void WeightLoader::fill(Weights& weights, std::int64_t matrix, const std::vector<MatrixSlice>& slices) {
  values_.resize(static_cast<std::size_t>(weights.outputs * weights.inputs));
  std::span<float> rest = values_;
  for (const MatrixSlice& slice : slices) {
    const auto size = static_cast<std::size_t>(slice.rows.size() * slice.columns.size());
    read(slice, rest.first(size));
    rest = rest.subspan(size);
  }
  products_.fill(weights, matrix, values_);
}

Weights WeightLoader::load(const std::vector<MatrixSlice>& slices) {
  std::int64_t outputs = 0;
  for (const MatrixSlice& slice : slices) {
    outputs += slice.rows.size();
  }
  Weights weights = products_.allocate(1, outputs, slices.front().columns.size());
  fill(weights, 0, slices);
  return weights;
}

Buffer WeightLoader::upload(std::span<const float> values) {
  if (type_ == DataType::float32) {
    return floats(values);
  }
  Buffer buffer(device_, values.size() * size_of(type_));
  std::vector<std::uint16_t> rounded(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    rounded[i] = bfloat16_of(values[i]);
  }
  copy_bytes(buffer.data(), rounded.data(), buffer.size_bytes(), stream_);
  stream_.synchronize();
  return buffer;
}

Buffer WeightLoader::vector(const std::string& name, std::int64_t size, Range range) {
  values_.resize(static_cast<std::size_t>(range.size()));
  source_.read(name, std::array{size}, range.begin, values_);
  return upload(values_);
}

float WeightLoader::largest(const std::string& name, std::int64_t size) {
  values_.resize(static_cast<std::size_t>(size));
  source_.read(name, std::array{size}, 0, values_);
  return std::accumulate(values_.begin(), values_.end(), 0.0F,
                         [](float most, float value) { return std::max(most, std::abs(value)); });
}

Buffer WeightLoader::floats(std::span<const float> values) const {
  Buffer buffer(device_, values.size_bytes());
  copy_bytes(buffer.data(), values.data(), buffer.size_bytes(), stream_);
  stream_.synchronize();
  return buffer;
}

Buffer WeightLoader::matrix(const std::string& name, std::int64_t num_rows, std::int64_t num_columns) {
  values_.resize(static_cast<std::size_t>(num_rows * num_columns));
  read({.name = name,
        .num_rows = num_rows,
        .num_columns = num_columns,
        .rows = {0, num_rows},
        .columns = {0, num_columns}},
       values_);
  return upload(values_);
}

}  // namespace moelink::engine
