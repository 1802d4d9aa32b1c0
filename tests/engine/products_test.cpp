// Products with weights: right, and each row's bits its own.
#include "engine/math/products.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/expect_error.hpp"
#include "engine/files/element_convert.hpp"
#include "engine/kernels/few_rows.cuh"
#include "engine/math/panel.hpp"
#include "engine/random_values.hpp"
#include "moelink/kernel.hpp"
#include "support/nvrtc.hpp"

namespace moelink::engine {
namespace {

using testing::random_values;

struct Shape {
  std::int64_t outputs;
  std::int64_t inputs;
};
// Whole panels, parts of one, less than one; the shapes of the small models.
constexpr Shape kShapes[] = {{64, 128},  {33, 7},    {1, 1},   {16, 128}, {1024, 128},
                             {384, 128}, {128, 256}, {48, 64}, {96, 5}};

/// `num_rows` rows of products, in double.
std::vector<double> reference(const Shape& shape, const std::vector<float>& weights, const float* input,
                              std::int64_t num_rows) {
  std::vector<double> output;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t i = 0; i < shape.outputs; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < shape.inputs; ++j) {
        sum += static_cast<double>(weights[static_cast<std::size_t>(i * shape.inputs + j)]) *
               input[row * shape.inputs + j];
      }
      output.push_back(sum);
    }
  }
  return output;
}

class HostProductsTest : public ::testing::Test {
 protected:
  std::vector<float> dense(const Weights& weights, const float* input, std::int64_t num_rows) {
    std::vector<float> output(static_cast<std::size_t>(num_rows * weights.outputs));
    products_->dense(weights, input, num_rows, output.data(), DataType::float32, stream_);
    stream_.synchronize();
    return output;
  }

  std::unique_ptr<Products> products_ = Products::make(Device::host(), DataType::float32);
  Stream stream_{Device::host()};
};

TEST_F(HostProductsTest, SumsAreRight) {
  for (const Shape& shape : kShapes) {
    const std::vector<float> values = random_values(shape.outputs * shape.inputs, 1);
    const std::vector<float> input = random_values(13 * shape.inputs, 2);
    Weights weights = products_->allocate(1, shape.outputs, shape.inputs);
    products_->fill(weights, 0, values);
    const std::vector<float> found = dense(weights, input.data(), 13);
    const std::vector<double> expected = reference(shape, values, input.data(), 13);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-5 * std::sqrt(static_cast<double>(shape.inputs))) << shape.outputs;
    }
  }
}

TEST_F(HostProductsTest, BitsOfARowDoNotDependOnTheOthers) {
  constexpr std::int64_t kMaxRows = 21;
  for (const Shape& shape : kShapes) {
    const std::vector<float> input = random_values(kMaxRows * shape.inputs, 3);
    Weights weights = products_->allocate(1, shape.outputs, shape.inputs);
    products_->fill(weights, 0, random_values(shape.outputs * shape.inputs, 4));
    std::vector<float> alone;
    for (std::int64_t row = 0; row < kMaxRows; ++row) {
      const std::vector<float> one = dense(weights, input.data() + row * shape.inputs, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (std::int64_t num_rows = 1; num_rows <= kMaxRows; ++num_rows) {
      const std::vector<float> together = dense(weights, input.data(), num_rows);
      ASSERT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0)
          << num_rows << " rows, " << shape.outputs << " x " << shape.inputs;
    }
  }
}

TEST_F(HostProductsTest, GroupsUseTheirOwnMatrixAndLeaveTheRestAlone) {
  constexpr Shape kShape{40, 24};
  const std::vector<std::int32_t> counts = {3, 0, 9, 1};
  const std::vector<std::int64_t> offsets = {0, 4, 4, 16, 17};  // with pads
  const std::vector<float> input = random_values(17 * kShape.inputs, 5);
  Weights weights = products_->allocate(4, kShape.outputs, kShape.inputs);
  std::vector<std::vector<float>> matrices;
  for (std::int64_t e = 0; e < 4; ++e) {
    matrices.push_back(random_values(kShape.outputs * kShape.inputs, 6 + static_cast<unsigned>(e)));
    products_->fill(weights, e, matrices.back());
  }
  std::vector<float> output(static_cast<std::size_t>(17 * kShape.outputs), -7.0F);
  products_->grouped(weights, {.offsets = offsets.data(), .counts = counts.data()}, input.data(), output.data(),
                     stream_);
  stream_.synchronize();
  for (std::size_t e = 0; e < counts.size(); ++e) {
    const auto expected = reference(kShape, matrices[e], input.data() + offsets[e] * kShape.inputs, counts[e]);
    const float* found = output.data() + offsets[e] * kShape.outputs;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-4) << "matrix " << e;
    }
    for (std::int64_t row = offsets[e] + counts[e]; row < offsets[e + 1]; ++row) {
      ASSERT_EQ(output[static_cast<std::size_t>(row * kShape.outputs)], -7.0F) << "pad row " << row;
    }
  }
}

#if MOELINK_ENGINE_X86
TEST(Panels, ProcessorsWithFusedProductsGiveTheSameBits) {
  if (!__builtin_cpu_supports("avx512f")) {
    GTEST_SKIP() << "this processor has no AVX-512";
  }
  const std::vector<float> values = random_values(kPanelWidth * 100 + 1, 1);
  const float* const weights = values.data() + (reinterpret_cast<std::uintptr_t>(values.data()) % 8 == 0 ? 1 : 0);
  const std::vector<float> input = random_values(13 * 100, 2);
  std::vector<float> narrow(13 * kPanelWidth);
  std::vector<float> wide(narrow.size());
  const auto panel = [&](std::vector<float>& output) {  // weights that are aligned to no more than a float
    return Panel{.weights = weights,
                 .input = input.data(),
                 .output = output.data(),
                 .num_rows = 13,
                 .inputs = 100,
                 .output_stride = kPanelWidth,
                 .width = kPanelWidth};
  };
  multiply_avx2(panel(narrow));
  multiply_avx512(panel(wide));
  EXPECT_EQ(narrow, wide);
  multiply_plain(panel(wide));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_NEAR(wide[i], narrow[i], 1e-5);
  }
}
#endif

/// FewRows on the host: the same source as on a GPU, whose weights are row-major.
TEST(FewRows, GroupsOfAnySizeAreRight) {
  constexpr Shape kShape{37, 24};
  const std::vector<std::int32_t> counts = {3, 0, 9, 1, 4};
  const std::vector<std::int64_t> offsets = {0, 3, 3, 12, 13};
  const std::vector<float> weights = random_values(5 * kShape.outputs * kShape.inputs, 1);
  const std::vector<float> input = random_values(17 * kShape.inputs, 2);
  std::vector<float> output(static_cast<std::size_t>(17 * kShape.outputs));
  KernelSet kernels(Device::host(), {});
  const auto few_rows = kernels.add<FewRows>(
      {.inputs = kShape.inputs, .outputs = kShape.outputs, .threads = 1, .element = Element::float32});
  kernels.load();
  const Stream stream(Device::host());
  few_rows.launch({.grid = 7},
                  {.weights = weights.data(),
                   .input = input.data(),
                   .output = output.data(),
                   .offsets = offsets.data(),
                   .counts = counts.data(),
                   .num_matrices = 5},
                  stream);
  stream.synchronize();
  for (std::size_t e = 0; e < counts.size(); ++e) {
    const auto first = weights.begin() + static_cast<std::ptrdiff_t>(e) * kShape.outputs * kShape.inputs;
    const auto expected = reference(kShape, {first, first + kShape.outputs * kShape.inputs},
                                    input.data() + offsets[e] * kShape.inputs, counts[e]);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(output[static_cast<std::size_t>(offsets[e] * kShape.outputs) + i], expected[i], 1e-4);
    }
  }
}

/// On a GPU, in both types: few rows by the kernel, many by cuBLAS.
class CudaProductsTest : public ::testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    MOELINK_NEEDS_NVRTC();
  }

  [[nodiscard]] std::vector<float> rounded(std::vector<float> values) const {
    if (GetParam() == DataType::bfloat16) {
      for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(bfloat16_of(value)) << 16);
    }
    return values;
  }
  [[nodiscard]] Buffer upload(const std::vector<float>& values, StreamView stream) const {
    Buffer buffer(Device::cuda(0), values.size() * size_of(GetParam()));
    std::vector<std::uint16_t> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(), bfloat16_of);
    const bool is_narrow = GetParam() == DataType::bfloat16;
    copy_bytes(buffer.data(), is_narrow ? static_cast<const void*>(narrow.data()) : values.data(), buffer.size_bytes(),
               stream);
    stream.synchronize();
    return buffer;
  }
  [[nodiscard]] std::vector<float> download(const Buffer& buffer, DataType type, StreamView stream) const {
    std::vector<std::byte> bytes(buffer.size_bytes());
    copy_bytes(bytes.data(), buffer.data(), bytes.size(), stream);
    stream.synchronize();
    std::vector<float> values(bytes.size() / size_of(type));
    EXPECT_TRUE(
        convert_to_floats(type == DataType::bfloat16 ? TensorType::bf16 : TensorType::f32, bytes.data(), values));
    return values;
  }
};

TEST_P(CudaProductsTest, DenseAndGroupedProductsAreRight) {
  constexpr Shape kShape{72, 64};
  const double tolerance = GetParam() == DataType::bfloat16 ? 2e-2 : 1e-4;
  const auto products = Products::make(Device::cuda(0), GetParam());
  const Stream stream(Device::cuda(0));
  const std::vector<std::int32_t> counts = {3, 0, 9, 1};
  const std::vector<std::int64_t> offsets = {0, 3, 3, 12, 13};
  const std::vector<float> values = rounded(random_values(13 * kShape.inputs, 2));
  const Buffer input = upload(values, stream);
  Weights weights = products->allocate(4, kShape.outputs, kShape.inputs);
  products->prepare(weights);
  std::vector<std::vector<float>> matrices;
  for (std::int64_t e = 0; e < 4; ++e) {
    matrices.push_back(rounded(random_values(kShape.outputs * kShape.inputs, 6 + static_cast<unsigned>(e))));
    products->fill(weights, e, matrices.back());
  }
  const Buffer output(Device::cuda(0), static_cast<std::size_t>(13 * kShape.outputs) * size_of(GetParam()));
  const Buffer wide(Device::cuda(0), static_cast<std::size_t>(13 * kShape.outputs) * sizeof(float));
  products->dense(weights, input.data(), 13, wide.data(), DataType::float32, stream);
  const std::vector<float> dense = download(wide, DataType::float32, stream);
  const auto expected_dense = reference(kShape, matrices[0], values.data(), 13);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    ASSERT_NEAR(dense[i], expected_dense[i], 1e-4);
  }

  Buffer device_counts(Device::cuda(0), counts.size() * sizeof(counts[0]));
  Buffer device_offsets(Device::cuda(0), offsets.size() * sizeof(offsets[0]));
  copy_bytes(device_counts.data(), counts.data(), device_counts.size_bytes(), stream);
  copy_bytes(device_offsets.data(), offsets.data(), device_offsets.size_bytes(), stream);
  for (const bool on_host : {false, true}) {
    fill_bytes(output.data(), 0xFF, output.size_bytes(), stream);
    RowGroups groups{.offsets = device_offsets.as<std::int64_t>(), .counts = device_counts.as<std::int32_t>()};
    if (on_host) {
      groups.host_counts = counts;
    }
    products->grouped(weights, groups, input.data(), output.data(), stream);
    const std::vector<float> found = download(output, GetParam(), stream);
    for (std::size_t e = 0; e < counts.size(); ++e) {
      const auto expected = reference(kShape, matrices[e], values.data() + offsets[e] * kShape.inputs, counts[e]);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(found[static_cast<std::size_t>(offsets[e] * kShape.outputs) + i], expected[i], tolerance)
            << "matrix " << e << (on_host ? ", cuBLAS" : ", few rows");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaProductsTest, ::testing::Values(DataType::bfloat16, DataType::float32),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST(Products, WhatTheHostDoesNotHaveIsNamed) {
  moelink::testing::expect_error(ErrorCode::unsupported, {"fp16", "fp32", "bf16"},
                                 [] { (void)Products::make(Device::host(), DataType::float16); });
}

}  // namespace
}  // namespace moelink::engine
