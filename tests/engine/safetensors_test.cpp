// Weight files are believed only after they were checked: what a truncated, lying or hostile file says must become an
// error that names the file and the tensor, and never an access outside of it.
#include "engine/files/safetensors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "comm/expect_error.hpp"
#include "engine/files/element_convert.hpp"
#include "engine/files/weight_files.hpp"
#include "engine/model_folder.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::data_folder;
using testing::ModelFolder;

/// A file with this header and `data_bytes` bytes of data: 0, 1, 2, ...
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) {
    file += static_cast<char>(i);
  }
  return file;
}

void expect_refused(const std::vector<std::string>& words, const std::string& contents) {
  const ModelFolder folder;
  const auto path = folder.write("bad.safetensors", contents);
  std::vector<std::string> expected = words;
  expected.emplace_back("bad.safetensors");
  expect_error(ErrorCode::invalid_argument, expected, [&] { const SafetensorsFile file(path); });
}

TEST(Safetensors, GoodFileHasItsTensors) {
  const ModelFolder folder;
  const SafetensorsFile file(folder.write(
      "good.safetensors",
      file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
              R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
              R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
              16)));
  ASSERT_EQ(file.tensors().size(), 3U);
  const Tensor& b = file.tensors().at("b");
  EXPECT_EQ(b.type, TensorType::bf16);
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(b.num_elements(), 6);
  EXPECT_EQ(b.bytes[0], std::byte{4});
  EXPECT_EQ(file.tensors().at("a").num_elements(), 1);
  EXPECT_EQ(file.tensors().at("none").num_elements(), 0);
}

TEST(Safetensors, FilesCutAnywhereAreRefused) {
  const std::string whole = file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    expect_refused({}, whole.substr(0, size));
  }
}

TEST(Safetensors, HeaderLengthIsNotBelieved) {
  std::string file = file_of("{}", 0);
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    std::memcpy(file.data(), &length, sizeof(length));
    expect_refused({"header of " + std::to_string(length)}, file);
  }
}

TEST(Safetensors, HeaderThatIsNoJsonObjectIsRefused) {
  expect_refused({"not valid JSON"}, file_of("{\"a\":", 0));
  expect_refused({"expected an object"}, file_of("[1]", 0));
  expect_refused({"tensor a", "expected an object"}, file_of(R"({"a":7})", 0));
  expect_refused({"not valid JSON"}, file_of(std::string(60, '['), 0));
  expect_refused({"64 deep"}, file_of(std::string(100'000, '['), 0));
}

TEST(Safetensors, TensorNamedTwiceIsRefused) {
  expect_refused({"\"a\"", "twice"}, file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                             R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                             1));
  expect_refused({"\"shape\"", "twice"},
                 file_of(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1));
}

TEST(Safetensors, EntriesThatCannotBeAreRefused) {
  const auto entry = [](const std::string& fields) { return file_of(R"({"x.weight":{)" + fields + "}}", 16); };
  const std::string tensor = "x.weight";
  expect_refused({tensor, "dtype", "missing"}, entry(R"("shape":[16],"data_offsets":[0,16])"));
  expect_refused({tensor, "dtype", "F17"}, entry(R"("dtype":"F17","shape":[16],"data_offsets":[0,16])"));
  expect_refused({tensor, "dtype"}, entry(R"("dtype":3,"shape":[16],"data_offsets":[0,16])"));
  expect_refused({tensor, "shape", "missing"}, entry(R"("dtype":"U8","data_offsets":[0,16])"));
  expect_refused({tensor, "shape", "-1"}, entry(R"("dtype":"U8","shape":[-1],"data_offsets":[0,16])"));
  expect_refused({tensor, "shape", "1.5"}, entry(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,16])"));
  expect_refused({tensor, "shape"}, entry(R"("dtype":"U8","shape":"16","data_offsets":[0,16])"));
  expect_refused({tensor, "data_offsets", "missing"}, entry(R"("dtype":"U8","shape":[16])"));
  expect_refused({tensor, "begin <= end"}, entry(R"("dtype":"U8","shape":[16],"data_offsets":[16,0])"));
  expect_refused({tensor, "begin <= end"}, entry(R"("dtype":"U8","shape":[16],"data_offsets":[0,8,16])"));
  expect_refused({tensor, "only 16"}, entry(R"("dtype":"U8","shape":[17],"data_offsets":[0,17])"));
  expect_refused({tensor, "data_offsets"},
                 entry(R"("dtype":"U8","shape":[17],"data_offsets":[0,18446744073709551615])"));
  expect_refused({tensor, "[3]", "has 12"}, entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,16])"));
  // The product of the shape overflows to exactly sixteen bytes.
  expect_refused({tensor, "more than 2^63"},
                 entry(R"("dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16])"));
}

TEST(Safetensors, ExtentsMustCoverTheDataOnce) {
  const auto pair = [](const std::string& first, const std::string& second) {
    return file_of(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":)" + first +
                       R"(},"b":{"dtype":"U8","shape":[8],"data_offsets":)" + second + "}}",
                   16);
  };
  expect_refused({"inside another", "tensor b"}, pair("[0,8]", "[4,12]"));
  expect_refused({"inside another"}, pair("[0,8]", "[0,8]"));
  expect_refused({"in front of tensor a", "1 bytes"}, pair("[1,9]", "[9,17]").append(1, 'x'));
  expect_refused({"behind its last tensor"}, pair("[0,8]", "[8,16]").append(1, 'x'));
}

TEST(WeightFiles, RealModelIsRead) {
  const WeightFiles files(data_folder("tiny-qwen3-moe"));
  const std::array<std::int64_t, 2> shape = {1024, 128};
  std::vector<float> row(128);
  files.read("model.embed_tokens.weight", shape, 1023 * 128, row);
  EXPECT_TRUE(std::isfinite(row[127]));
  expect_error(ErrorCode::invalid_argument, {"model.embed_tokens.weight", "131072"},
               [&] { files.read("model.embed_tokens.weight", shape, 1023 * 128 + 1, row); });
}

TEST(WeightFiles, MissingTensorAndWrongShapeAreNamed) {
  const WeightFiles files(data_folder("tiny-qwen3-moe"));
  const std::array<std::int64_t, 2> shape = {1024, 64};
  expect_error(ErrorCode::invalid_argument, {"model.layers.9.mlp.gate.weight", "missing", "tiny-qwen3-moe"},
               [&] { (void)files.find("model.layers.9.mlp.gate.weight", shape); });
  expect_error(ErrorCode::invalid_argument, {"lm_head.weight", "[1024, 128]", "[1024, 64]"},
               [&] { (void)files.find("lm_head.weight", shape); });
}

TEST(WeightFiles, TypesThatAreNoWeightsAreNamed) {
  const ModelFolder folder;
  folder.write("model.safetensors", file_of(R"({"w":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4));
  const WeightFiles files(folder.path());
  const std::array<std::int64_t, 1> shape = {1};
  std::vector<float> value(1);
  expect_error(ErrorCode::unsupported, {"tensor w", "I32"}, [&] { files.read("w", shape, 0, value); });
}

TEST(WeightFiles, ShardsAreFoundByTheIndex) {
  const ModelFolder folder;
  folder.write("one.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  folder.write("two.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const WeightFiles files(folder.path());
  EXPECT_EQ(files.find("a", std::array<std::int64_t, 1>{2}).bytes.size(), 2U);
  EXPECT_EQ(files.find("b", std::array<std::int64_t, 1>{3}).bytes.size(), 3U);
}

TEST(WeightFiles, IndexThatLiesIsRefused) {
  const ModelFolder folder;
  folder.write("one.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  const auto refused = [&](ErrorCode code, const std::vector<std::string>& words, const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    expect_error(code, words, [&] { const WeightFiles files(folder.path()); });
  };
  refused(ErrorCode::invalid_argument, {"tensor b", "one.safetensors"}, R"({"weight_map":{"b":"one.safetensors"}})");
  refused(ErrorCode::invalid_argument, {"weight_map", "../one"}, R"({"weight_map":{"a":"../one.safetensors"}})");
  refused(ErrorCode::invalid_argument, {"weight_map", "7"}, R"({"weight_map":{"a":7}})");
  refused(ErrorCode::invalid_argument, {"weight_map", "missing"}, "{}");
  refused(ErrorCode::system, {"two.safetensors"}, R"({"weight_map":{"a":"two.safetensors"}})");
}

TEST(WeightFiles, FolderWithoutWeightsSaysWhatWasExpected) {
  const ModelFolder folder;
  expect_error(ErrorCode::invalid_argument, {"model.safetensors", folder.path().string()},
               [&] { const WeightFiles files(folder.path()); });
}

TEST(RandomWeights, PartsAreTheWholesParts) {
  const RandomWeights weights(7);
  const std::array<std::int64_t, 2> shape = {30, 40};
  std::vector<float> whole(1200);
  weights.read("a.weight", shape, 0, whole);
  std::vector<float> part(100);
  weights.read("a.weight", shape, 500, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 500));
  double squares = 0;
  for (const float value : whole) squares += static_cast<double>(value) * value;
  EXPECT_NEAR(squares / 1200 * 40, 1, 0.1);  // a sum of 40 products keeps the size of what goes in
  std::vector<float> other(1200);
  weights.read("b.weight", shape, 0, other);
  EXPECT_NE(other, whole);
}

TEST(ElementConvert, HalvesAreExact) {
  EXPECT_EQ(float_of_half(0x3C00), 1.0F);
  EXPECT_EQ(float_of_half(0xC500), -5.0F);
  EXPECT_EQ(float_of_half(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(float_of_half(0x7BFF), 65504.0F);
  EXPECT_EQ(float_of_half(0xFC00), -INFINITY);
  EXPECT_TRUE(std::signbit(float_of_half(0x8000)));
  EXPECT_TRUE(std::isnan(float_of_half(0x7E00)));
}

TEST(ElementConvert, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(bfloat16_of(1.0F), 0x3F80);
  EXPECT_EQ(bfloat16_of(std::ldexp(257.0F, -8)), 0x3F80);  // a tie goes to the even neighbour below
  EXPECT_EQ(bfloat16_of(std::ldexp(259.0F, -8)), 0x3F82);  // and above
  EXPECT_EQ(bfloat16_of(INFINITY), 0x7F80);
  EXPECT_EQ(bfloat16_of(3.4028235e38F), 0x7F80);
  EXPECT_EQ(bfloat16_of(std::bit_cast<float>(0x7F800001U)) & 0x7FC0, 0x7FC0);
}

}  // namespace
}  // namespace moelink::engine
