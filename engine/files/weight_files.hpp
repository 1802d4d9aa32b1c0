// The tensors of a model's folder, in one file or sharded over several with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/files/safetensors.hpp"
#include "engine/files/weight_source.hpp"

namespace moelink::engine {

/// Finds tensors by name in model.safetensors or, if there is one, by model.safetensors.index.json in its shards. Every
/// header is read at construction; of the data only what is asked for. Throws invalid_argument, naming file and tensor,
/// for bad files (SafetensorsFile), an index that names a file outside the folder or a tensor that its shard lacks.
class WeightFiles final : public WeightSource {
 public:
  explicit WeightFiles(const std::filesystem::path& folder);

  /// Of all tensors, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }

  /// A tensor of this shape. Throws invalid_argument, naming the tensor and what was found, if there is none.
  [[nodiscard]] const Tensor& find(const std::string& name, std::span<const std::int64_t> shape) const;

  /// See WeightSource. ErrorCode::unsupported for types other than BF16, F16 and F32.
  void read(const std::string& name, std::span<const std::int64_t> shape, std::int64_t begin,
            std::span<float> destination) const override;

 private:
  void add_file(const std::filesystem::path& path);
  void add_index(const std::filesystem::path& index);

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const Tensor*> tensors_;  // into files_, whose maps never move
};

}  // namespace moelink::engine
