// Where the weights of a model come from.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace moelink::engine {

class WeightSource {
 public:
  WeightSource() = default;
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  /// Reads elements [begin, begin + destination.size()) of tensor `name`, which has this shape, as floats. Throws
  /// invalid_argument or unsupported, naming the tensor.
  virtual void read(const std::string& name, std::span<const std::int64_t> shape, std::int64_t begin,
                    std::span<float> destination) const = 0;
};

/// Weights that nobody trained, for measurements: every tensor of every shape is there, the same on every machine. Norms
/// are ones; elements of matrices are so small that activations keep their size.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(std::uint64_t seed) : seed_(seed) {}
  void read(const std::string& name, std::span<const std::int64_t> shape, std::int64_t begin,
            std::span<float> destination) const override;

 private:
  std::uint64_t seed_;
};

}  // namespace moelink::engine
