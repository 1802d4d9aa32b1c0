#include "engine/files/weight_files.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/text.hpp"
#include "engine/files/element_convert.hpp"
#include "engine/files/json.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// The shard that an index names: a plain file name, never a way out of the model's folder.
std::string shard_name(const Json& value, const std::string& tensor, const std::string& origin) {
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
    throw Error(ErrorCode::invalid_argument, text(origin, ": weight_map gives ", value.dump(), " for tensor ", tensor,
                                                  "; expected the name of a file beside the index"));
  }
  return name;
}

}  // namespace

WeightFiles::WeightFiles(const std::filesystem::path& folder) : folder_(folder.string()) {
  if (std::filesystem::exists(folder / kIndex)) {
    add_index(folder / kIndex);
  } else if (std::filesystem::exists(folder / kSingleFile)) {
    add_file(folder / kSingleFile);
    for (const auto& [name, tensor] : files_.front().tensors()) {
      tensors_.emplace(name, &tensor);
    }
  } else {
    throw Error(ErrorCode::invalid_argument,
                text("no weights in ", folder_, ": expected ", kSingleFile, " or ", kIndex, " there"));
  }
}

void WeightFiles::add_file(const std::filesystem::path& path) { files_.emplace_back(path); }

void WeightFiles::add_index(const std::filesystem::path& index) {
  const std::string origin = index.string();
  const Json parsed = read_json(index);
  const JsonObject root(parsed, origin);
  const auto weight_map = root.required(root.object("weight_map"), "weight_map");
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  for (const auto& [tensor, file] : root.find("weight_map")->items()) {
    shard_of[tensor] = shard_name(file, tensor, weight_map.origin());
    shards.insert(shard_of[tensor]);
  }
  std::map<std::string, const SafetensorsFile*> opened;
  files_.reserve(shards.size());
  for (const std::string& shard : shards) {
    add_file(index.parent_path() / shard);
    opened[shard] = &files_.back();
  }
  for (const auto& [name, shard] : shard_of) {
    const auto& tensors = opened[shard]->tensors();
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      throw Error(ErrorCode::invalid_argument,
                  text(origin, " says that tensor ", name, " is in ", shard, ", but that file does not have it"));
    }
    tensors_.emplace(name, &found->second);
  }
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    names.push_back(name);
  }
  return names;
}

const Tensor& WeightFiles::find(const std::string& name, std::span<const std::int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw Error(
        ErrorCode::invalid_argument,
        text(folder_, ": tensor ", name, " is missing; config.json asks for it, with shape ", describe_shape(shape)));
  }
  const Tensor& tensor = *found->second;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    throw Error(ErrorCode::invalid_argument,
                text(folder_, ": tensor ", name, " has shape ", describe_shape(tensor.shape), "; config.json asks for ",
                     describe_shape(shape)));
  }
  return tensor;
}

void WeightFiles::read(const std::string& name, std::span<const std::int64_t> shape, std::int64_t begin,
                       std::span<float> destination) const {
  const Tensor& tensor = find(name, shape);
  const auto count = static_cast<std::int64_t>(destination.size());
  if (begin < 0 || begin > tensor.num_elements() || count > tensor.num_elements() - begin) {
    throw Error(ErrorCode::invalid_argument, text("elements ", begin, " to ", begin + count, " of tensor ", name,
                                                  " were asked for, which has ", tensor.num_elements()));
  }
  if (!convert_to_floats(tensor.type, tensor.bytes.data() + begin * bytes_of(tensor.type), destination)) {
    throw Error(ErrorCode::unsupported,
                text(folder_, ": tensor ", name, " is ", name_of(tensor.type), "; weights must be BF16, F16 or F32"));
  }
}

}  // namespace moelink::engine
