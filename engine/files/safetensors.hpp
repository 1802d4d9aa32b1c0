// The safetensors format: eight bytes with the length of a JSON header, the header, then the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/mapped_file.hpp"

namespace moelink::engine {

/// Element types of the format, by the names that it has for them.
enum class TensorType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64
};

[[nodiscard]] std::string_view name_of(TensorType type) noexcept;
[[nodiscard]] std::int64_t bytes_of(TensorType type) noexcept;

/// A tensor inside a mapped file: row-major, little-endian, at any alignment.
struct Tensor {
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;

  [[nodiscard]] std::int64_t num_elements() const noexcept;
};

/// "[128, 64]", for errors.
[[nodiscard]] std::string describe_shape(std::span<const std::int64_t> shape);

/// One file. Opening it maps it and checks all that the header says before anything is believed: its length, its
/// syntax, that no tensor is named twice, that every type and shape is possible, that shape, type and extent agree,
/// and that the extents cover the data exactly, without overlaps, gaps or an end past the file's. Throws
/// invalid_argument, naming the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_.path(); }
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const noexcept { return tensors_; }

 private:
  MappedFile file_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace moelink::engine
