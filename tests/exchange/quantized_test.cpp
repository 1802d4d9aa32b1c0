// A dispatch that quantises must give what quantising first and dispatching opaque rows gives: every byte of rows and
// scales, and the same routing. (tests/quantize compares the quantiser itself with another implementation.)
#include <gtest/gtest.h>

#include <algorithm>

#include "exchange/problem.hpp"
#include "exchange/runner.hpp"
#include "moelink/error.hpp"
#include "moelink/quantize.hpp"

namespace moelink::test {
namespace {

constexpr Quantization kFormats[] = {Quantization::fp8, Quantization::fp8_pow2, Quantization::mxfp8,
                                     Quantization::mxfp4, Quantization::nvfp4};
constexpr float kTensorScale = 0.03125F;

Shape typed(const Shape& shape, DataType type) {
  Shape result = shape;
  result.payload = {.type = type};
  return result;
}

ExchangeConfig quantizing(const Shape& shape, Quantization format) {
  ExchangeConfig config = config_for(shape);
  config.payloads = {{.type = shape.payload.type, .quantize = format}};
  config.own_rows = true;
  return config;
}

class QuantizedDispatch : public DeviceTest {
 protected:
  void check(const Shape& shape, Quantization format, Routing kind, bool reuse = false);
};

void QuantizedDispatch::check(const Shape& shape, Quantization format, Routing kind, bool reuse) {
  SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(shape.num_tokens) + " tokens of " +
               std::to_string(shape.hidden) + (reuse ? ", routing reused" : ""));
  const Stream stream(device());
  const Problem problem(shape, kind);
  const std::int64_t row_bytes = Quantizer::row_bytes(format, shape.hidden);
  const std::int64_t scale_bytes = Quantizer::num_blocks(format, shape.hidden) * Quantizer::bytes_per_scale(format);

  // What is expected: the tokens, quantised beforehand, as an opaque problem.
  Shape opaque = shape;
  opaque.payload = {.type = DataType::bytes, .row_bytes = row_bytes, .scale_bytes = scale_bytes};
  Problem quantized(opaque, problem.ids);
  quantized.weights = problem.weights;
  const Buffer tokens = upload(problem.tokens, stream);
  const Buffer elements(device(), static_cast<std::size_t>(std::max<std::int64_t>(shape.num_tokens * row_bytes, 1)));
  const Buffer scales(device(), static_cast<std::size_t>(std::max<std::int64_t>(shape.num_tokens * scale_bytes, 1)));
  const Buffer tensor_scale = upload(std::vector<float>{kTensorScale}, stream);
  const Quantizer quantizer(device(), {.format = format, .input = shape.payload.type, .columns = shape.hidden});
  quantizer.quantize({.input = {tokens.data(), shape.payload.type, shape.num_tokens, shape.hidden},
                      .output = {elements.data(), DataType::bytes, shape.num_tokens, row_bytes},
                      .scales = {scales.data()},
                      .tensor_scale = tensor_scale.as<float>()},
                     stream);
  quantized.tokens = download<unsigned char>(elements.data(), shape.num_tokens * row_bytes, stream);
  quantized.scales = download<unsigned char>(scales.data(), shape.num_tokens * scale_bytes, stream);
  const Expected expected(quantized);

  Runner runner(problem, quantizing(shape, format), stream);
  const auto dispatch = [&](bool reuse_routing) {
    DispatchArgs args = runner.dispatch_args();
    args.rows = {};
    args.scales = {};
    args.quantize = format;
    args.tensor_scale = tensor_scale.as<float>();
    args.reuse_routing = reuse_routing;
    return runner.exchange().dispatch(args, stream);
  };
  ExpertBatch batch = dispatch(false);
  if (reuse) {
    runner.load_expert_output(expected);
    runner.exchange().combine(runner.combine_args(batch), stream);
    batch = dispatch(true);
  }
  EXPECT_EQ(batch.rows.type, DataType::bytes);
  EXPECT_EQ(batch.rows.columns, row_bytes);
  EXPECT_EQ(batch.scales.columns, scale_bytes);
  const Outcome outcome = runner.read(batch);
  EXPECT_EQ(outcome.offsets, expected.routing.offsets);
  const std::int64_t num_rows = expected.routing.offsets.back();
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (expected.routing.expert_of_row[static_cast<std::size_t>(row)] < 0) continue;
    const auto same = [row](const Bytes& a, const Bytes& b, std::int64_t bytes) {
      return std::equal(a.begin() + row * bytes, a.begin() + (row + 1) * bytes, b.begin() + row * bytes);
    };
    ASSERT_TRUE(same(outcome.rows, expected.rows, row_bytes)) << "row " << row;
    ASSERT_TRUE(same(outcome.scales, expected.scales, scale_bytes)) << "scales of row " << row;
  }
  runner.load_expert_output(expected);
  runner.exchange().combine(runner.combine_args(batch), stream);
  stream.synchronize();
  runner.exchange().check();
}

TEST_P(QuantizedDispatch, IsQuantisingFirst) {
  for (const Quantization format : kFormats) {
    for (const std::int64_t tokens : {1, 5, 33, 300}) {
      const Shape shape{.num_tokens = tokens, .num_experts = 16, .top_k = 4, .hidden = 256};
      check(typed(shape, DataType::bfloat16), format, Routing::uniform);
    }
    // Many tokens: short last blocks, and rows that no piece divides.
    check(typed({.num_tokens = 1300, .num_experts = 8, .top_k = 2, .hidden = 352}, DataType::float16), format,
          Routing::duplicates);
    check(typed({.num_tokens = 700, .num_experts = 16, .top_k = 3, .hidden = 1152}, DataType::bfloat16), format,
          Routing::holes);
    // A short last block, several parts of a row, and rows longer than one block holds.
    check(typed({.num_tokens = 3, .num_experts = 8, .top_k = 2, .hidden = 2912}, DataType::float16), format,
          Routing::duplicates);
    check(typed({.num_tokens = 2, .num_experts = 8, .top_k = 3, .hidden = 20480}, DataType::bfloat16), format,
          Routing::holes);
  }
}

TEST_P(QuantizedDispatch, KeepsLayoutsAndAlignment) {
  for (const Quantization format : kFormats) {
    check(typed({.num_tokens = 9, .num_experts = 8, .top_k = 2, .hidden = 128, .alignment = 128}, DataType::bfloat16),
          format, Routing::zipf);
    check(typed({.num_tokens = 9, .num_experts = 8, .top_k = 2, .hidden = 128, .layout = Layout::batched},
                DataType::bfloat16),
          format, Routing::uniform);
  }
}

TEST_P(QuantizedDispatch, CanReuseRouting) {
  for (const std::int64_t tokens : {4, 300}) {
    check(typed({.num_tokens = tokens, .num_experts = 8, .top_k = 4, .hidden = 256}, DataType::bfloat16),
          Quantization::nvfp4, Routing::uniform, true);
  }
}

TEST(QuantizedConfig, BadFormatsAreRefusedInWords) {
  const auto refused = [](const Payload& payload, std::int64_t hidden, const std::string& words) {
    try {
      Exchange(Communicator::single(Device::host()),
               {.num_experts = 4, .top_k = 2, .hidden = hidden, .max_tokens = 4, .payloads = {payload}});
      ADD_FAILURE() << "not refused: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused({.type = DataType::float32, .quantize = Quantization::fp8}, 128, "only bf16 and fp16 are quantised");
  refused({.type = DataType::bytes, .row_bytes = 128, .quantize = Quantization::fp8}, 128, "quantised already");
  refused({.scale_bytes = 4, .quantize = Quantization::fp8}, 128, "beside quantize");
  refused({.quantize = Quantization::mxfp4}, 48, "pad hidden to 64");
  refused({.quantize = Quantization::fp8}, 40, "pad hidden to 48");
}

MOELINK_TEST_ON_DEVICES(QuantizedDispatch);

}  // namespace
}  // namespace moelink::test
