#include "engine/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/text.hpp"
#include "engine/files/json.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and read in place");

// The format's own limit: a longer header is an attack or garbage.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<TypeRow, 15> kTypes = {{
    {TensorType::boolean, "BOOL", 1},
    {TensorType::u8, "U8", 1},
    {TensorType::i8, "I8", 1},
    {TensorType::f8_e5m2, "F8_E5M2", 1},
    {TensorType::f8_e4m3, "F8_E4M3", 1},
    {TensorType::i16, "I16", 2},
    {TensorType::u16, "U16", 2},
    {TensorType::f16, "F16", 2},
    {TensorType::bf16, "BF16", 2},
    {TensorType::i32, "I32", 4},
    {TensorType::u32, "U32", 4},
    {TensorType::f32, "F32", 4},
    {TensorType::i64, "I64", 8},
    {TensorType::u64, "U64", 8},
    {TensorType::f64, "F64", 8},
}};

[[noreturn]] void refuse(const std::string& origin, const std::string& complaint) {
  throw Error(ErrorCode::invalid_argument, origin + " " + complaint);
}

std::string_view header_of(std::span<const std::byte> bytes, const std::string& origin) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    refuse(origin,
           text("is no safetensors file: it has ", bytes.size(), " bytes, fewer than the 8 of a header's length"));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > bytes.size() - sizeof(length)) {
    refuse(origin, text("announces a header of ", length, " bytes, but has ", bytes.size() - sizeof(length),
                        " after its length (at most ", kMaxHeaderBytes,
                        " are allowed): it is truncated or no safetensors file"));
  }
  return {reinterpret_cast<const char*>(bytes.data()) + sizeof(length), static_cast<std::size_t>(length)};
}

TensorType type_of(const JsonObject& entry) {
  const std::string name = entry.required(entry.string("dtype"), "dtype");
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return r.name == name; });
  if (row == kTypes.end()) {
    entry.refuse("dtype", text("is \"", name, "\", which is no type of the format"));
  }
  return row->type;
}

std::int64_t integer_at(const JsonObject& entry, const std::string& key, const Json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX) {
    entry.refuse(key, text("contains ", value.dump(), "; expected integers from 0 to 2^63 - 1"));
  }
  return value.get<std::int64_t>();
}

std::vector<std::int64_t> integers_of(const JsonObject& entry, const std::string& key) {
  if (entry.find(key) == nullptr) {
    entry.refuse(key, "is missing");
  }
  std::vector<std::int64_t> values;
  for (const Json& value : entry.array(key)) {
    values.push_back(integer_at(entry, key, value));
  }
  return values;
}

/// Bytes that a tensor of this shape has; none if that is more than 2^63.
std::optional<std::int64_t> size_of_shape(std::span<const std::int64_t> shape, std::int64_t element_bytes) {
  // A zero anywhere makes the product zero; elsewhere an overflow stays one.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return 0;
  }
  std::int64_t size = element_bytes;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) {
      return {};
    }
  }
  return size;
}

/// What the header says of one tensor: `data` is all that follows the header.
Tensor tensor_of(const JsonObject& entry, std::span<const std::byte> data) {
  Tensor tensor{.type = type_of(entry), .shape = integers_of(entry, "shape"), .bytes = {}};
  const std::vector<std::int64_t> offsets = integers_of(entry, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    entry.refuse("data_offsets", "must be [begin, end] with begin <= end");
  }
  const auto end = static_cast<std::uint64_t>(offsets[1]);
  if (end > data.size()) {
    entry.refuse("data_offsets", text("end at byte ", end, ", but the file has only ", data.size(),
                                      " bytes of data: it is truncated, or its header is wrong"));
  }
  const std::int64_t extent = offsets[1] - offsets[0];
  const auto expected = size_of_shape(tensor.shape, bytes_of(tensor.type));
  if (expected != extent) {
    entry.refuse("data_offsets",
                 text("span ", extent, " bytes, but ", name_of(tensor.type), " of shape ", describe_shape(tensor.shape),
                      " has ", expected ? std::to_string(*expected) : "more than 2^63"));
  }
  tensor.bytes = data.subspan(static_cast<std::size_t>(offsets[0]), static_cast<std::size_t>(extent));
  return tensor;
}

/// The tensors, in the order of the file, must follow each other from the first byte of the data to the last.
void check_coverage(const std::map<std::string, Tensor>& tensors, std::span<const std::byte> data,
                    const std::string& origin) {
  std::vector<std::pair<std::span<const std::byte>, const std::string*>> extents;
  extents.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    extents.emplace_back(tensor.bytes, &name);
  }
  // Empty tensors first where they begin at the same byte as another.
  std::sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.data(), a.first.size()) < std::pair(b.first.data(), b.first.size());
  });
  const std::byte* position = data.data();
  for (const auto& [bytes, name] : extents) {
    if (bytes.data() < position) {
      refuse(origin, text("lets tensor ", *name, " begin inside another, at byte ", bytes.data() - data.data(),
                          " of the data"));
    }
    if (bytes.data() > position) {
      refuse(origin,
             text("has ", bytes.data() - position, " bytes in front of tensor ", *name, " that belong to none"));
    }
    position = bytes.data() + bytes.size();
  }
  if (position != data.data() + data.size()) {
    refuse(origin,
           text("has ", data.data() + data.size() - position, " bytes behind its last tensor that belong to none"));
  }
}

}  // namespace

std::string_view name_of(TensorType type) noexcept { return kTypes[static_cast<std::size_t>(type)].name; }
std::int64_t bytes_of(TensorType type) noexcept { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::int64_t Tensor::num_elements() const noexcept { return static_cast<std::int64_t>(bytes.size()) / bytes_of(type); }

std::string describe_shape(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (const std::int64_t extent : shape) {
    out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return out + "]";
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string origin = path.string();
  const std::string_view header = header_of(file_.bytes(), origin);
  const std::span<const std::byte> data = file_.bytes().subspan(sizeof(std::uint64_t) + header.size());
  const Json parsed = parse_json(header, origin + " (header)");
  if (!parsed.is_object()) {
    refuse(origin, text("has a header that is ", parsed.type_name(), "; expected an object"));
  }
  for (const auto& [name, entry] : parsed.items()) {
    if (name != "__metadata__") {
      tensors_.emplace(name, tensor_of(JsonObject(entry, text(origin, ": tensor ", name)), data));
    }
  }
  check_coverage(tensors_, data, origin);
}

}  // namespace moelink::engine
