// Configurations that cannot be used are refused at construction, by a sentence that names value, expectation and
// remedy.
#include <gtest/gtest.h>

#include <limits>

#include "moelink/error.hpp"
#include "moelink/exchange.hpp"

namespace moelink {
namespace {

ExchangeConfig good() { return {.num_experts = 128, .top_k = 8, .hidden = 2048, .max_tokens = 4096}; }

/// The memory report checks the configuration and allocates nothing.
MemoryReport plan_memory(const ExchangeConfig& config) {
  return Exchange::memory(Communicator::single(Device::host()), config);
}

/// Changes a good configuration, expects a refusal, and that its sentence contains each of `words`.
template <class Change>
void expect_refused(Change change, std::initializer_list<const char*> words,
                    ErrorCode code = ErrorCode::invalid_argument) {
  ExchangeConfig config = good();
  change(config);
  try {
    (void)plan_memory(config);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const char* word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "'" << word << "' is not in: " << error.what();
    }
  }
}

TEST(ExchangeConfig, ShapesOfKnownModelsAreAccepted) {
  const ExchangeConfig models[] = {
      {.num_experts = 128, .top_k = 8, .hidden = 2048, .max_tokens = 4096},
      {.num_experts = 512, .top_k = 10, .hidden = 2048, .max_tokens = 4096},
      {.num_experts = 256, .top_k = 8, .hidden = 7168, .max_tokens = 4096},
      {.num_experts = 896, .top_k = 16, .hidden = 3584, .max_tokens = 1},
      {.num_experts = 32, .top_k = 4, .hidden = 2880, .max_tokens = 33},
      {.num_experts = 128, .top_k = 1, .hidden = 5120, .max_tokens = 1},
      {.num_experts = 60, .top_k = 4, .hidden = 2048, .max_tokens = 1},
      {.num_experts = 512, .top_k = 22, .hidden = 1024, .max_tokens = 1},
      {.num_experts = 128, .top_k = 6, .hidden = 2688, .max_tokens = 1},
  };
  for (const ExchangeConfig& model : models) EXPECT_NO_THROW((void)plan_memory(model));
}

TEST(ExchangeConfig, TransportThatDoesNotExistIsRefusedAlsoWhereNothingIsPut) {
  EXPECT_NO_THROW((void)plan_memory({.num_experts = 1, .top_k = 1, .hidden = 8, .max_tokens = 1, .transport = "ucx"}));
  expect_refused([](auto& c) { c.transport = "pigeon"; }, {"ExchangeConfig::transport", "pigeon", "loopback"});
}

TEST(ExchangeConfig, NumExpertsOutsideItsRangeIsRefused) {
  EXPECT_NO_THROW((void)plan_memory({.num_experts = 1, .top_k = 8, .hidden = 8, .max_tokens = 1}));
  EXPECT_NO_THROW((void)plan_memory({.num_experts = 16384, .top_k = 8, .hidden = 8, .max_tokens = 1}));
  expect_refused([](auto& c) { c.num_experts = 0; }, {"num_experts is 0", "1 .. 16384"});
  expect_refused([](auto& c) { c.num_experts = -5; }, {"num_experts is -5"});
  expect_refused([](auto& c) { c.num_experts = 16385; }, {"num_experts is 16385"});
  expect_refused([](auto& c) { c.num_experts = (std::int64_t{1} << 32) + 8; }, {"num_experts is 4294967304"});
}

TEST(ExchangeConfig, TopKOutsideItsRangeIsRefused) {
  for (const int k : {1, 3, 5, 7, 10, 16, 22, 32}) {
    EXPECT_NO_THROW((void)plan_memory({.num_experts = 64, .top_k = k, .hidden = 8, .max_tokens = 1})) << k;
  }
  expect_refused([](auto& c) { c.top_k = 0; }, {"top_k is 0", "1 .. 32"});
  expect_refused([](auto& c) { c.top_k = 33; }, {"top_k is 33"});
  expect_refused([](auto& c) { c.top_k = -1; }, {"top_k is -1"});
}

TEST(ExchangeConfig, RowsThatAreNoMultipleOfSixteenBytesAreRefusedForEachTypeUsed) {
  expect_refused([](auto& c) { c.hidden = 2052; }, {"hidden is 2052", "4104 bytes", "pad hidden to 2056"});
  expect_refused([](auto& c) { c.hidden = 0; }, {"hidden is 0"});
  expect_refused([](auto& c) { c.hidden = -16; }, {"hidden is -16"});
  // 2052 floats are a multiple of 16 bytes, 2052 halves are not.
  expect_refused(
      [](auto& c) {
        c.hidden = 2052;
        c.payloads = {{.type = DataType::float32}};
        c.combine_types = {{.expert_output = DataType::float32, .output = DataType::float16}};
      },
      {"fp16", "2056"});
  ExchangeConfig floats = good();
  floats.hidden = 2052;
  floats.payloads = {{.type = DataType::float32}};
  floats.combine_types = {{.expert_output = DataType::float32, .output = DataType::float32}};
  EXPECT_NO_THROW((void)plan_memory(floats));
}

TEST(ExchangeConfig, MaxTokensThatOverflowEntryNumbersAreRefused) {
  expect_refused([](auto& c) { c.max_tokens = 0; }, {"max_tokens is 0"});
  expect_refused([](auto& c) { c.max_tokens = -1; }, {"max_tokens is -1"});
  expect_refused([](auto& c) { c.max_tokens = std::numeric_limits<std::int64_t>::max(); }, {"max_tokens is 9223372"});
  expect_refused([](auto& c) { c.max_tokens = (std::int64_t{1} << 31) / 8; }, {"2147483648 entries", "268435455"});
  EXPECT_NO_THROW((void)plan_memory({.num_experts = 8, .top_k = 8, .hidden = 8, .max_tokens = 268435455}));
}

TEST(ExchangeConfig, AlignmentThatIsNoPowerOfTwoIsRefused) {
  for (const int alignment : {0, -128, 3, 96, 1 << 17, std::numeric_limits<int>::min()}) {
    expect_refused([&](auto& c) { c.max_alignment = alignment; }, {"max_alignment", "power of two"});
  }
}

TEST(ExchangeConfig, CapacityMustBeWholeAlignedAndCountable) {
  expect_refused(
      [](auto& c) {
        c.max_alignment = 128;
        c.max_rows = 1000;
      },
      {"max_rows is 1000", "use 1024"});
  expect_refused([](auto& c) { c.max_rows = std::int64_t{1} << 31; }, {"max_rows is 2147483648"});
  expect_refused([](auto& c) { c.max_rows = 0; }, {"max_rows", "max_rows_per_expert", "no layout"});
  expect_refused([](auto& c) { c.max_rows_per_expert = -1; }, {"max_rows_per_expert is -1"});
  expect_refused([](auto& c) { c.max_rows_per_expert = 1 << 24; }, {"2147483648 rows", "16777215"});
  // Worst case past 2^31 rows: only the alignment pushes it over.
  expect_refused(
      [](auto& c) {
        c.max_tokens = 268435455;
        c.max_alignment = 256;
      },
      {"worst_case"});
}

TEST(ExchangeConfig, PayloadsMustBeMovable) {
  expect_refused([](auto& c) { c.payloads = {}; }, {"payloads is empty"});
  expect_refused([](auto& c) { c.payloads = {{.type = DataType::bytes}}; }, {"payloads[0].row_bytes is 0"});
  expect_refused(
      [](auto& c) {
        c.payloads = {{}, {.type = DataType::bytes, .row_bytes = 100}};
      },
      {"payloads[1].row_bytes is 100", "multiple of 16"});
  expect_refused([](auto& c) { c.payloads = {{.type = DataType::bytes, .row_bytes = std::int64_t{1} << 31}}; },
                 {"below 2^31"});
  expect_refused([](auto& c) { c.payloads = {{.type = DataType::bfloat16, .row_bytes = 4096}}; }, {"leave it 0"});
  expect_refused([](auto& c) { c.payloads = {{.scale_bytes = -1}}; }, {"scale_bytes is -1"});
  expect_refused([](auto& c) { c.payloads = {{.type = static_cast<DataType>(9)}}; }, {"type is 9"});
}

TEST(ExchangeConfig, CombineComputesOnTypedRowsOnly) {
  expect_refused([](auto& c) { c.combine_types = {}; }, {"combine_types is empty"});
  expect_refused([](auto& c) { c.combine_types = {{.expert_output = DataType::bytes}}; }, {"bytes"});
  expect_refused([](auto& c) { c.combine_types = {{.output = static_cast<DataType>(77)}}; }, {"combine_types[0]"});
}

TEST(ExchangeConfig, WeightsOnOpaqueRowsOnlyAreRefused) {
  expect_refused(
      [](auto& c) {
        c.payloads = {{.type = DataType::bytes, .row_bytes = 1024}};
        c.weights_on_input = true;
      },
      {"weights_on_input"});
}

TEST(ExchangeConfig, NegativeCapacityIsNotTakenForTheWorstCase) {
  expect_refused([](auto& c) { c.max_rows = -5; }, {"max_rows is -5"});
}

TEST(ExchangeConfig, TotalsThatOverflowSixtyThreeBitsAreRefusedNotReportedAsNegative) {
  expect_refused(
      [](auto& c) {
        c.max_rows = std::numeric_limits<std::int32_t>::max();
        c.hidden = (std::int64_t{1} << 31) / 4 - 4;
        c.payloads = {{.type = DataType::bytes, .row_bytes = (std::int64_t{1} << 31) - 16, .scale_bytes = 1 << 30}};
        c.combine_types = {{DataType::float32, DataType::float32}};
        c.own_expert_output = true;
      },
      {"2^61", "max_rows"}, ErrorCode::capacity);
}

TEST(ExchangeConfig, WhatNeedsSeveralRanksIsRefusedOnOne) {
  expect_refused([](auto& c) { c.tp_size = 0; }, {"tp_size is 0", "divisor of the 1 ranks"});
  expect_refused([](auto& c) { c.tp_size = 2; }, {"tp_size is 2"});
  expect_refused([](auto& c) { c.fp32_partials = true; }, {"fp32_partials", "mode local"});
  expect_refused([](auto& c) { c.max_replicas = 2; }, {"max_replicas is 2", "num_physical_experts"});
  expect_refused([](auto& c) { c.num_physical_experts = 100; }, {"num_physical_experts is 100", "128 .. 16384"});
  expect_refused(
      [](auto& c) {
        c.num_physical_experts = 160;
        c.max_replicas = 161;
      },
      {"max_replicas is 161"});
  expect_refused([](auto& c) { c.num_physical_experts = 160; }, {"num_physical_experts is 160", "mode local"},
                 ErrorCode::unsupported);
  expect_refused([](auto& c) { c.mode = static_cast<Mode>(9); }, {"mode is 9"});
}

TEST(MemoryReport, EveryByteIsExplainedBeforeAnythingIsAllocated) {
  // 64 * 4096 tokens of 14 KB to the worst case is 30 GB a rank: reported, not allocated.
  const MemoryReport report =
      plan_memory({.num_experts = 256, .top_k = 8, .hidden = 7168, .max_tokens = 64 * 4096, .max_alignment = 128});
  std::int64_t sum = 0;
  std::int64_t rows_bytes = 0;
  for (const MemoryItem& item : report.items) {
    EXPECT_FALSE(item.name.empty());
    EXPECT_FALSE(item.formula.empty()) << item.name;
    EXPECT_FALSE(item.where.empty()) << item.name;
    EXPECT_GE(item.bytes, 0) << item.name;
    sum += item.bytes;
    if (item.name == "rows") rows_bytes = item.bytes;
    EXPECT_NE(report.to_string().find(item.formula), std::string::npos);
  }
  EXPECT_EQ(rows_bytes, (64LL * 4096 * 8 + 256 * 127) / 128 * 128 * 14336);
  EXPECT_EQ(report.total_bytes(), sum);
  EXPECT_NE(report.to_string().find(std::to_string(sum)), std::string::npos);
}

TEST(MemoryReport, BuffersTheCallerBringsAreNotCounted) {
  ExchangeConfig config = good();
  const std::int64_t own = plan_memory(config).total_bytes();
  config.own_rows = false;
  const std::int64_t brought = plan_memory(config).total_bytes();
  EXPECT_EQ(own - brought, 4096LL * 8 * 2048 * 2);
  config.own_expert_output = true;
  EXPECT_EQ(plan_memory(config).total_bytes() - brought, 4096LL * 8 * 2048 * 2);
}

TEST(MemoryReport, LayoutsShareTheRowsBuffer) {
  ExchangeConfig config = good();
  const auto rows_bytes = [&] {
    for (const MemoryItem& item : plan_memory(config).items) {
      if (item.name == "rows") return item.bytes;
    }
    return std::int64_t{-1};
  };
  config.max_rows = 1024;
  EXPECT_EQ(rows_bytes(), 1024 * 4096);
  config.max_rows_per_expert = 16;
  EXPECT_EQ(rows_bytes(), 128 * 16 * 4096);
  config.payloads = {{}, {.type = DataType::float32}};
  EXPECT_EQ(rows_bytes(), 128 * 16 * 8192);
}

}  // namespace
}  // namespace moelink
