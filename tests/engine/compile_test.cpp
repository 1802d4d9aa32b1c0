// The engine's kernels compile for the GPUs we care for, without one here, and spill no register.
#include <gtest/gtest.h>

#include <string>

#include "comm/expect_error.hpp"
#include "engine/kernels/few_rows.cuh"
#include "engine/model/kernel_sources.hpp"
#include "engine/model/kernels.hpp"
#include "engine/model_folder.hpp"
#include "support/nvrtc.hpp"

namespace moelink::engine {
namespace {

struct Case {
  ModelConfig config;
  DataType type;
  Quantization payload = Quantization::none;
};

/// The layer shapes of models that people run, one of those in tests/data, and heads of odd sizes.
std::vector<Case> cases() {
  ModelConfig qwen = read_model_config(testing::data_folder("tiny-qwen3-moe"));
  qwen.hidden = 2048;
  qwen.num_heads = 32;
  qwen.num_kv_heads = 4;
  qwen.head_dim = 128;
  qwen.num_experts = 128;
  qwen.top_k = 8;
  qwen.expert_intermediate = 768;
  ModelConfig olmoe = read_model_config(testing::data_folder("tiny-olmoe"));
  olmoe.hidden = 2048;
  olmoe.num_heads = 16;
  olmoe.num_kv_heads = 16;
  olmoe.head_dim = 128;
  olmoe.num_experts = 64;
  olmoe.top_k = 8;
  olmoe.expert_intermediate = 1024;
  olmoe.clip_qkv = 8.0F;
  ModelConfig wide = qwen;
  wide.head_dim = 256;
  ModelConfig odd = qwen;
  odd.head_dim = 96;
  odd.qk_norm = QkNorm::none;
  return {{qwen, DataType::bfloat16, Quantization::nvfp4},
          {olmoe, DataType::bfloat16, Quantization::fp8},
          {wide, DataType::float32, Quantization::mxfp8},
          {odd, DataType::bfloat16, Quantization::mxfp4},
          {read_model_config(testing::data_folder("tiny-qwen3-moe")), DataType::float32}};
}

class EngineKernelsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineKernelsTest, CompileWithoutSpills) {
  MOELINK_NEEDS_NVRTC();
  std::size_t num_kernels = 0;
  for (const auto& [config, type, payload] : cases()) {
    const Shard shard = shard_of(config, {}, {0, config.num_experts});
    // As where heads are split over ranks, or not.
    const DataType block_type = config.qk_norm == QkNorm::all_heads ? type : DataType::float32;
    for (const KernelReport& report :
         ModelKernels::set_for(Device::cuda(0), config, shard, {type, block_type, payload}, 16).warm_up(GetParam())) {
      EXPECT_EQ(report.spilled_bytes, 0) << report.name << ", head_dim " << config.head_dim << ", " << name_of(type);
      EXPECT_LE(report.registers, 255);
      ++num_kernels;
    }
  }
  KernelSet few_rows(Device::cuda(0), kernel_headers());
  for (const Element element : {Element::bfloat16, Element::float32}) {
    (void)few_rows.add<FewRows>({.inputs = 2048, .outputs = 1536, .threads = 256, .element = element});
    (void)few_rows.add<FewRows>({.inputs = 96, .outputs = 50, .threads = 256, .element = element});
  }
  for (const KernelReport& report : few_rows.warm_up(GetParam())) {
    EXPECT_EQ(report.spilled_bytes, 0) << report.name;
    ++num_kernels;
  }
  EXPECT_GE(num_kernels, 43U);
}

INSTANTIATE_TEST_SUITE_P(Architectures, EngineKernelsTest, ::testing::Values("sm_90a", "sm_100a"),
                         [](const auto& value) { return std::string(value.param); });

TEST(EngineKernels, ShapesWithoutKernelsAreNamed) {
  ModelConfig config = read_model_config(testing::data_folder("tiny-qwen3-moe"));
  const auto expect_refused = [&](const std::string& word, Quantization payload = Quantization::none) {
    const Shard shard = shard_of(config, {}, {0, config.num_experts});
    moelink::testing::expect_error(ErrorCode::unsupported, {word}, [&] {
      (void)ModelKernels::set_for(Device::host(), config, shard, {DataType::bfloat16, DataType::float32, payload}, 16);
    });
  };
  config.hidden = 132;
  expect_refused("hidden_size is 132");
  config.hidden = 128;
  config.head_dim = 24;
  expect_refused("head_dim is 24");
  config.head_dim = 1024;
  expect_refused("head_dim is 1024");
  config.head_dim = 32;
  config.hidden = 40;
  expect_refused("rows quantised to fp8 need a multiple of 16", Quantization::fp8);
  config.hidden = 48;
  expect_refused("rows quantised to nvfp4 need a multiple of 32", Quantization::nvfp4);
}

TEST(Shards, HeadsAreSharedOutWithTheKeysThatTheyUse) {
  ModelConfig config;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  const Shard two = shard_of(config, {.rank = 1, .size = 2}, {});
  EXPECT_EQ(two.heads.begin, 4);
  EXPECT_EQ(two.kv_heads.begin, 1);
  EXPECT_EQ(two.kv_heads.end, 2);
  // More ranks than key heads: neighbours have the same one.
  for (int rank = 0; rank < 4; ++rank) {
    const Shard four = shard_of(config, {.rank = rank, .size = 4}, {});
    EXPECT_EQ(four.heads.begin, rank * 2);
    EXPECT_EQ(four.heads.size(), 2);
    EXPECT_EQ(four.kv_heads.begin, rank / 2);
    EXPECT_EQ(four.kv_heads.size(), 1);
  }
  moelink::testing::expect_error(ErrorCode::unsupported, {"3 ranks"}, [&] { (void)shard_of(config, {.size = 3}, {}); });
  config.qk_norm = QkNorm::all_heads;
  moelink::testing::expect_error(ErrorCode::unsupported, {"normalised together"},
                                 [&] { (void)shard_of(config, {.size = 4}, {}); });
}

}  // namespace
}  // namespace moelink::engine
