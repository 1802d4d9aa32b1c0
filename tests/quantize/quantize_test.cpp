// Quantizer against another implementation of the narrow types, on every device.
#include "moelink/quantize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <sstream>

#include "base/sha256.hpp"
#include "moelink/error.hpp"
#include "moelink/protocol/quantize.hpp"
#include "quantize/fixture.hpp"
#include "support/device.hpp"

namespace moelink::test {
namespace {

constexpr float kTensorScale = 0.0625F;  // as in make.py
constexpr Quantization kFormats[] = {Quantization::fp8, Quantization::fp8_pow2, Quantization::mxfp8,
                                     Quantization::mxfp4, Quantization::nvfp4};

struct Quantized {
  Bytes elements;
  Bytes scales;
};

class QuantizeTest : public DeviceTest {
 protected:
  /// Rows of `columns` bf16.
  static Quantized quantize(Quantization format, const std::vector<std::uint16_t>& values, std::int64_t columns,
                            DataType type = DataType::bfloat16) {
    return quantize_on(device(), {.format = format, .input = type, .columns = columns}, values, kTensorScale);
  }
  static Quantized quantize_on(Device device, const QuantizerConfig& config, const std::vector<std::uint16_t>& values,
                               float tensor_scale) {
    const auto [format, type, columns] = config;
    const auto num_rows = static_cast<std::int64_t>(values.size()) / columns;
    const Stream stream(device);
    const Quantizer quantizer(device, config);
    const Buffer input = upload(values, stream);
    const Buffer scale = upload(std::vector<float>{tensor_scale}, stream);
    const std::int64_t row_bytes = Quantizer::row_bytes(format, columns);
    const Buffer elements = upload(Bytes(static_cast<std::size_t>(num_rows * row_bytes), 0xcc), stream);
    const std::int64_t scale_bytes = Quantizer::scale_bytes(format, columns, num_rows, ScaleArrangement::row_major);
    const Buffer scales = upload(Bytes(static_cast<std::size_t>(scale_bytes), 0xcc), stream);
    quantizer.quantize({.input = {input.data(), type, num_rows, columns},
                        .output = {elements.data(), DataType::bytes, num_rows, row_bytes},
                        .scales = {.data = scales.data()},
                        .tensor_scale = format == Quantization::nvfp4 ? scale.as<float>() : nullptr},
                       stream);
    return {download<unsigned char>(elements.data(), num_rows * row_bytes, stream),
            download<unsigned char>(scales.data(), scale_bytes, stream)};
  }
};

TEST_P(QuantizeTest, RandomBlocksAreThoseOfAnotherImplementation) {
  const Bytes raw = read_fixture("blocks_bf16.bin");
  std::vector<std::uint16_t> values(raw.size() / 2);
  std::memcpy(values.data(), raw.data(), raw.size());
  for (const Quantization format : kFormats) {
    const std::string name(name_of(format));
    SCOPED_TRACE(name);
    const Quantized got = quantize(format, values, 512);
    EXPECT_EQ(got.elements, read_fixture("blocks_" + name + "_elements.bin"));
    EXPECT_EQ(got.scales, read_fixture("blocks_" + name + "_scales.bin"));
  }
}

TEST_P(QuantizeTest, EveryBf16IsThatOfAnotherImplementation) {
  const Bytes raw = read_fixture("hashes.txt");
  std::istringstream hashes(std::string(raw.begin(), raw.end()));
  const auto hash = [](const Bytes& bytes) {
    return to_hex(sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  };
  for (const Quantization format : kFormats) {
    std::string name;
    std::string elements;
    std::string scales;
    hashes >> name >> elements >> scales;
    ASSERT_EQ(name, name_of(format));
    SCOPED_TRACE(name);
    const Quantized got = quantize(format, all_bf16(), 512);
    EXPECT_EQ(hash(got.elements), elements);
    EXPECT_EQ(hash(got.scales), scales);
  }
}

/// A short last block, and rows whose blocks do not fill a warp, must equal the same values followed by zeros.
TEST_P(QuantizeTest, AShortLastBlockIsItsOwnBlock) {
  constexpr std::int64_t kRows = 3;
  for (const Quantization format : kFormats) {
    for (const std::int64_t columns : {8, 16, 24, 136, 264, 2880}) {
      SCOPED_TRACE(std::string(name_of(format)) + " " + std::to_string(columns));
      const std::int64_t padded = (columns + 127) / 128 * 128;
      std::vector<std::uint16_t> short_rows;
      std::vector<std::uint16_t> padded_rows;
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t column = 0; column < padded; ++column) {
          const auto value = static_cast<std::uint16_t>(0x3f80 + 37 * column % 512 + 64 * row);
          if (column < columns) short_rows.push_back(value);
          padded_rows.push_back(column < columns ? value : 0);
        }
      }
      const Quantized got = quantize(format, short_rows, columns);
      const Quantized whole = quantize(format, padded_rows, padded);
      const std::int64_t row_bytes = Quantizer::row_bytes(format, columns);
      const std::int64_t scale_bytes = Quantizer::num_blocks(format, columns) * Quantizer::bytes_per_scale(format);
      for (std::int64_t row = 0; row < kRows; ++row) {
        const auto part = [](const Bytes& bytes, std::int64_t first, std::int64_t count) {
          return Bytes(bytes.begin() + first, bytes.begin() + first + count);
        };
        EXPECT_EQ(part(got.elements, row * row_bytes, row_bytes),
                  part(whole.elements, row * Quantizer::row_bytes(format, padded), row_bytes));
        EXPECT_EQ(part(got.scales, row * scale_bytes, scale_bytes),
                  part(whole.scales, row * Quantizer::num_blocks(format, padded) * Quantizer::bytes_per_scale(format),
                       scale_bytes));
      }
    }
  }
}

TEST_P(QuantizeTest, Fp16GivesWhatTheSameValuesInBf16Give) {
  std::vector<std::uint16_t> in_bf16;
  std::vector<std::uint16_t> in_fp16;
  for (int i = 0; i < 512; ++i) {  // values that both types have
    const int exponent = i % 13 - 6;
    in_bf16.push_back(static_cast<std::uint16_t>((i % 2) << 15 | (127 + exponent) << 7 | i % 128));
    in_fp16.push_back(static_cast<std::uint16_t>((i % 2) << 15 | (15 + exponent) << 10 | i % 128 << 3));
  }
  for (const Quantization format : kFormats) {
    SCOPED_TRACE(name_of(format));
    const Quantized a = quantize(format, in_bf16, 256);
    const Quantized b = quantize(format, in_fp16, 256, DataType::float16);
    EXPECT_EQ(a.elements, b.elements);
    EXPECT_EQ(a.scales, b.scales);
  }
  // An infinity and a NaN of fp16.
  in_fp16[3] = 0xfc00;
  in_fp16[300] = 0x7e00;
  in_bf16[3] = 0xff80;
  in_bf16[300] = 0x7fc0;
  const Quantized a = quantize(Quantization::nvfp4, in_bf16, 256);
  const Quantized b = quantize(Quantization::nvfp4, in_fp16, 256, DataType::float16);
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.scales, b.scales);
}

TEST_P(QuantizeTest, EveryScaleOfATensorGivesWhatTheHostGives) {
  if (!on_gpu()) GTEST_SKIP() << "the host is what a GPU is compared with";
  std::vector<float> tensor_scales{1e-30F, 1e-18F, 3e15F, 1e20F};  // beyond what quotients are safe with
  for (int i = 0; i < 24; ++i) {
    tensor_scales.push_back(std::ldexp(static_cast<float>(0xffffff - i * 0x54321), 3 * (i % 12 - 6) - 24));
  }
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    const QuantizerConfig config{.format = Quantization::nvfp4, .input = type, .columns = 512};
    for (const float tensor_scale : tensor_scales) {
      const Quantized got = quantize_on(device(), config, all_bf16(), tensor_scale);  // all fp16, too
      const Quantized wanted = quantize_on(Device::host(), config, all_bf16(), tensor_scale);
      EXPECT_TRUE(got.elements == wanted.elements) << tensor_scale;
      EXPECT_TRUE(got.scales == wanted.scales) << tensor_scale;
    }
  }
}

/// Byte of scale (row, block) of a tile as NVIDIA's cuBLAS documentation draws it, written down once more.
std::size_t tile_byte(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t tiles_per_row = (blocks + 3) / 4;
  std::int64_t byte = (row / 128 * tiles_per_row + block / 4) * 512;
  byte += (row % 32) * 16;
  byte += (row / 32 % 4) * 4;
  return static_cast<std::size_t>(byte + block % 4);
}

TEST_P(QuantizeTest, ScalesStandWhereTheArrangementSays) {
  constexpr std::int64_t kRows = 200;
  constexpr std::int64_t kColumns = 352;  // 11 blocks of 32
  const Stream stream(device());
  for (const Quantization format : {Quantization::mxfp8, Quantization::fp8}) {
    const Quantizer quantizer(device(), {.format = format, .columns = kColumns});
    const std::int64_t blocks = Quantizer::num_blocks(format, kColumns);
    const std::int64_t bytes = Quantizer::bytes_per_scale(format);
    std::vector<std::uint16_t> values(kRows * kColumns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 40503 % 0x7f00);
    const Buffer input = upload(values, stream);
    const Buffer output(device(), static_cast<std::size_t>(kRows * Quantizer::row_bytes(format, kColumns)));
    const QuantizeArgs args{.input = {input.data(), DataType::bfloat16, kRows, kColumns},
                            .output = {output.data(), DataType::bytes, kRows, Quantizer::row_bytes(format, kColumns)}};
    const auto scales_in = [&](ScaleArrangement arrangement, std::int64_t stride, std::int64_t size, bool by_arrange) {
      const Buffer rows_first = upload(Bytes(static_cast<std::size_t>(kRows * blocks * bytes), 0), stream);
      const Buffer scales = upload(Bytes(static_cast<std::size_t>(size), 0xee), stream);
      QuantizeArgs call = args;
      const ScalesView wanted{scales.data(), arrangement, stride};
      call.scales = by_arrange ? ScalesView{rows_first.data()} : wanted;
      quantizer.quantize(call, stream);
      if (by_arrange) quantizer.arrange({rows_first.data()}, wanted, kRows, stream);
      return download<unsigned char>(scales.data(), size, stream);
    };
    const Bytes row_major = scales_in(ScaleArrangement::row_major, 0, kRows * blocks * bytes, false);
    for (const bool by_arrange : {false, true}) {
      constexpr std::int64_t kStride = kRows + 56;
      Bytes expected(static_cast<std::size_t>(blocks * kStride * bytes), 0xee);
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t block = 0; block < blocks; ++block) {
          std::memcpy(&expected[static_cast<std::size_t>((block * kStride + row) * bytes)],
                      &row_major[static_cast<std::size_t>((row * blocks + block) * bytes)],
                      static_cast<std::size_t>(bytes));
        }
      }
      EXPECT_EQ(scales_in(ScaleArrangement::column_major, kStride, blocks * kStride * bytes, by_arrange), expected);
      if (bytes != 1) continue;
      const std::int64_t tiles_bytes = Quantizer::scale_bytes(format, kColumns, kRows, ScaleArrangement::swizzled);
      EXPECT_EQ(tiles_bytes, 2 * 3 * 512);
      Bytes tiles(static_cast<std::size_t>(tiles_bytes), 0xee);
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t block = 0; block < blocks; ++block) {
          tiles[tile_byte(row, block, blocks)] = row_major[static_cast<std::size_t>(row * blocks + block)];
        }
      }
      EXPECT_EQ(scales_in(ScaleArrangement::swizzled, 0, tiles_bytes, by_arrange), tiles);
    }
  }
}

TEST_P(QuantizeTest, RowsPastTheDevicesCountAreLeftAlone) {
  constexpr std::int32_t kRows = 20000;  // more than a GPU has at once
  const Stream stream(device());
  const Quantizer quantizer(device(), {.format = Quantization::mxfp8, .columns = 32});
  const Buffer input = upload(std::vector<std::uint16_t>(kRows * 32, 0x3f80), stream);
  for (const std::int32_t count : {-1, 0, 3, kRows - 1, kRows, kRows + 5}) {
    const Buffer output = upload(Bytes(kRows * 32, 0xaa), stream);
    const Buffer scales = upload(Bytes(kRows, 0xaa), stream);
    const Buffer num_rows = upload(std::vector<std::int32_t>{count}, stream);
    quantizer.quantize({.input = {input.data(), DataType::bfloat16, kRows, 32},
                        .output = {output.data(), DataType::bytes, kRows, 32},
                        .scales = {scales.data()},
                        .num_rows_on_device = num_rows.as<std::int32_t>()},
                       stream);
    const auto written = static_cast<std::size_t>(std::clamp(count, 0, kRows));
    Bytes wanted(kRows, 0xaa);
    std::fill_n(wanted.begin(), written, static_cast<unsigned char>(127 - 8));  // of ones
    EXPECT_TRUE(download<unsigned char>(scales.data(), kRows, stream) == wanted) << count;
  }
}

TEST_P(QuantizeTest, BadInputIsRefusedInWords) {
  const auto refused = [](const std::function<void()>& body, const std::string& words) {
    try {
      body();
      ADD_FAILURE() << "not refused: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused([] { Quantizer(device(), {.format = Quantization::none, .columns = 32}); }, "format is none");
  refused([] { Quantizer(device(), {.columns = 2052}); }, "columns is 2052; expected a multiple of 8");
  refused([] { Quantizer(device(), {.input = DataType::float32, .columns = 32}); }, "expected bf16 or fp16");

  const Stream stream(device());
  const Quantizer quantizer(device(), {.format = Quantization::fp8, .columns = 128});
  const Buffer memory(device(), 4096);
  const QuantizeArgs good{.input = {memory.data(), DataType::bfloat16, 2, 128},
                          .output = {memory.as<std::byte>() + 1024, DataType::bytes, 2, 128},
                          .scales = {memory.as<std::byte>() + 2048}};
  quantizer.quantize(good, stream);
  const auto with = [&](auto change, const std::string& words) {
    QuantizeArgs args = good;
    change(args);
    refused([&] { quantizer.quantize(args, stream); }, words);
  };
  with([&](auto& args) { args.input.data = memory.as<std::byte>() + 2; }, "not aligned to 16 bytes");
  with([](auto& args) { args.input.columns = 64; }, "has 64 columns; expected 128");
  with([](auto& args) { args.input.row_stride_bytes = 264; }, "not a multiple of 16");
  with([](auto& args) { args.output.rows = 1; }, "has 1 rows");
  with([](auto& args) { args.output.data = nullptr; }, "output is null");
  with([&](auto& args) { args.scales.data = memory.as<std::byte>() + 2049; }, "not aligned to 4 bytes");
  with([](auto& args) { args.scales.arrangement = ScaleArrangement::swizzled; }, "only one-byte scales");
  with([](auto& args) { args.scales.stride = -5; }, "stride of -5");
  stream.synchronize();
}

TEST(QuantizeTiles, AreWholeBlocksOfScalesAndNoneIsEmpty) {
  for (const i32 units : {1, 2, 4, 7}) {
    for (i32 columns = 8; columns < 9000; columns += 8) {
      const QuantizeTiles tiles(QuantizeSpec{.columns = columns, .units_at_once = units});
      EXPECT_EQ(0, tiles.columns % 256);
      EXPECT_LE(tiles.columns, 256 * units);
      EXPECT_GE(tiles.per_row * tiles.columns, columns);
      EXPECT_LT((tiles.per_row - 1) * tiles.columns, columns) << columns << " columns, " << units << " units";
    }
  }
}

MOELINK_TEST_ON_DEVICES(QuantizeTest);

}  // namespace
}  // namespace moelink::test
