// moe_perf over several ranks of this process, on shapes small enough for any machine.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "perf/moe/moe_perf.hpp"

namespace moelink::perf {
namespace {

using Arguments = std::vector<std::string>;

const Arguments kSmall = {"--model", "olmoe", "--hidden", "64", "-n", "2", "-w", "1", "--sets", "2"};
const Arguments kHost = {"--device", "host", "--threads", "1"};

struct Outcome {
  int exit_code;
  std::string table;
  std::string errors;
};

Outcome run(const Arguments& mode, const Arguments& more = {}, const MoeHooks& hooks = {},
            const Arguments& device = kHost) {
  std::vector<const char*> argv = {"moe_perf"};
  for (const Arguments* arguments : {&kSmall, &device, &mode, &more}) {
    for (const std::string& argument : *arguments) argv.push_back(argument.c_str());
  }
  std::ostringstream table;
  testing::internal::CaptureStderr();
  const int exit_code = run_moe_perf(static_cast<int>(argv.size()), argv.data(), table, hooks);
  return {exit_code, table.str(), testing::internal::GetCapturedStderr()};
}

std::string temporary(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / ("moelink_moe_perf_ranks_" + name)).string();
}

nlohmann::json rows_of(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)).at("rows"); }

const Arguments kTensorParallel = {"--mode", "tp", "--ranks", "3"};
const Arguments kNvlink = {"--mode", "nvlink", "--ranks", "3"};
const Arguments kPuts = {"--mode", "p2p", "--transport", "loopback", "--ranks", "4", "--ranks-per-node", "2"};
const Arguments kGroups = {"--mode", "nvlink", "--ranks", "4", "--tp-size", "2"};

std::string text_of(const Arguments& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += argument;
  std::erase_if(text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return text;
}

/// A mode, and what else its ranks are asked for.
struct Traffic {
  Arguments mode;
  Arguments more;
};

class MoePerfRanks : public testing::TestWithParam<Traffic> {};

TEST_P(MoePerfRanks, EveryValueIsRight) {
  const Outcome result = run(GetParam().mode, GetParam().more);
  EXPECT_EQ(result.exit_code, 0) << result.table << result.errors;
  EXPECT_NE(result.table.find("Wrong values: 0 OK"), std::string::npos) << result.table;
}

std::vector<Traffic> all_traffic() {
  std::vector<Traffic> all;
  for (const Arguments& mode : {kTensorParallel, kNvlink, kGroups, kPuts}) {
    all.push_back({mode, {"--tokens", "0,1,33"}});
    all.push_back({mode, {"--tokens", "0,5,40", "--phase", "split", "--layout", "batched", "--routing", "zipf"}});
    all.push_back({mode, {"--tokens", "7", "--layout", "batched", "--capacity", "1"}});
    all.push_back({mode, {"--tokens", "7", "--payload", "bytes", "--scale-bytes", "16", "--weights", "none"}});
    all.push_back({mode, {"--tokens", "0,1,33", "--payload", "mxfp4", "--alignment", "128"}});
    all.push_back({mode, {"--tokens", "9", "--payload", "fp16", "--weights", "on_input", "--alignment", "16"}});
    all.push_back({mode, {"--tokens", "9", "--experts", "2", "--topk", "1", "--index", "int64", "--routing", "one"}});
  }
  for (const Arguments& mode : {kNvlink, kGroups}) {
    all.push_back({mode, {"--tokens", "0,13", "--replicas", "3", "--fp32-partials"}});
  }
  all.push_back({kNvlink, {"--tokens-per-rank", "0,40,3"}});
  all.push_back({kPuts, {"--tokens-per-rank", "0,40,3,0", "--fp32-partials"}});
  all.push_back({kPuts, {"--tokens", "9", "--ranks", "3", "--baseline", "allgather"}});  // the last node has one rank
  all.push_back({kGroups, {"--tokens-per-rank", "5,5,0,0"}});
  all.push_back({kNvlink, {"--tokens", "0,11", "--baseline", "allgather"}});
  all.push_back({kNvlink, {"--tokens", "0,11", "--payload", "fp8", "--prequantized", "--phase", "split"}});
  // Several threads share a row, and each has the scales of its part.
  all.push_back({kNvlink, {"--tokens", "1,2", "--payload", "mxfp8", "--hidden", "2880", "--threads", "8"}});
  all.push_back({kGroups, {"--tokens", "1,3", "--payload", "nvfp4", "--hidden", "2880", "--threads", "8"}});
  all.push_back({kTensorParallel, {"--tokens", "1,3", "--payload", "fp8", "--hidden", "2880", "--threads", "8"}});
  for (const char* sum : {"push", "pull", "two_shot", "separate"}) {
    all.push_back({kTensorParallel, {"--tokens", "0,1,33", "--sum", sum}});
    all.push_back({kTensorParallel, {"--tokens", "0,1,33", "--sum", sum, "--fp32-partials"}});
  }
  all.push_back({kTensorParallel, {"--tokens", "11", "-c", "2", "--ranks", "8", "--experts", "5", "--topk", "5"}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, MoePerfRanks, testing::ValuesIn(all_traffic()), [](const auto& traffic) {
  return text_of(traffic.param.mode) + "_" + text_of(traffic.param.more);
});

class MoePerfRanksWrong : public testing::TestWithParam<Arguments> {};

TEST_P(MoePerfRanksWrong, ValueOnAnyRankIsFoundAndFailsTheRun) {
  for (const int bad_rank : {0, 2}) {
    MoeHooks hooks;
    hooks.after_combine = [bad_rank](int rank, MutableMatrixView output, StreamView) {
      if (rank == bad_rank) static_cast<std::uint16_t*>(output.data)[5] ^= 1;
    };
    const Outcome result = run(GetParam(), {"--tokens", "9"}, hooks);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.table.find("Wrong values: 2 FAILED"), std::string::npos) << result.table;  // one in each set
    EXPECT_NE(result.errors.find("rank " + std::to_string(bad_rank) + ": first wrong value: output of token 0"),
              std::string::npos)
        << result.errors;
  }
}

TEST_P(MoePerfRanksWrong, RowOfAnotherRankIsFoundWhereItArrives) {
  MoeHooks hooks;
  hooks.after_dispatch = [](int rank, MutableMatrixView rows, StreamView) {
    if (rank == 1) static_cast<std::uint16_t*>(rows.data)[3] ^= 1;
  };
  const Outcome result = run(GetParam(), {"--tokens", "9", "--sets", "1"}, hooks);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("rank 1: first wrong value: dispatched row 0 column 3"), std::string::npos)
      << result.errors;
}

INSTANTIATE_TEST_SUITE_P(Modes, MoePerfRanksWrong, testing::Values(kTensorParallel, kNvlink, kGroups),
                         [](const auto& mode) { return text_of(mode.param); });

TEST(MoePerfRanks, BaselineThatCannotRunHereIsSaidAndTheRestIsMeasured) {
  for (const char* name : {"nccl", "mpi"}) {
    const Outcome result = run(kNvlink, {"--tokens", "3", "--baseline", name});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.table.find(std::string(name) + ": not possible"), std::string::npos) << result.table;
    EXPECT_NE(result.table.find("N/A"), std::string::npos) << result.table;
  }
}

TEST(MoePerfRanks, WhatPutsGoOverIsSaid) {
  EXPECT_NE(run(kPuts, {"--tokens", "3"}).table.find("# puts: 2 remotes over loopback"), std::string::npos);
  const Outcome on_one_node = run({"--mode", "p2p", "--ranks", "2"}, {"--tokens", "3"});
  EXPECT_NE(on_one_node.table.find("# puts: none"), std::string::npos) << on_one_node.table;
  const Outcome unused = run({"--mode", "p2p", "--ranks", "2"}, {"--tokens", "3", "--transport", "ucx"});
  EXPECT_NE(unused.table.find("--transport ucx is not used"), std::string::npos) << unused.table;
  const Outcome refused = run(kNvlink, {"--tokens", "3", "--transport", "loopback"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("--transport loopback is what --mode p2p puts over"), std::string::npos)
      << refused.errors;
}

TEST(MoePerfRanks, JsonRowsHaveWhatReadersRelyOn) {
  const std::string path = temporary("schema.json");
  ASSERT_EQ(run(kNvlink, {"--tokens", "0,33", "--phase", "split", "--json", path}).exit_code, 0);
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("ranks"), 3);
    EXPECT_EQ(row.at("calls"), "split");
    for (const char* key : {"p50_us", "send_us", "receive_us", "wire_bytes", "moved_bytes", "link_us", "limit_us"}) {
      EXPECT_TRUE(row.at(key).is_number()) << key;
    }
    EXPECT_GE(row["p99_us"], row["p50_us"]);
    EXPECT_TRUE(row.at("host_us").is_null()) << "on the host, calls are part of the time";
  }
  EXPECT_GT(rows[2]["wire_bytes"], 0);
  EXPECT_LT(rows[2]["wire_bytes"], rows[2]["logical_bytes"]);  // a token travels once to a rank
  EXPECT_EQ(rows[0]["wire_bytes"], 0);
}

TEST(MoePerfRanks, WhatACallCostsItsThreadIsToldWhereItIsLaunched) {
  if (Device::cuda_count() == 0) GTEST_SKIP() << "no CUDA device";
  const std::string path = temporary("host_time.json");
  for (const char* replays : {"0", "1"}) {
    const bool launched = std::string(replays) == "0";
    const Outcome result = run(kNvlink, {"--tokens", "33", "-G", replays, "--json", path}, {}, {"--device", "cuda:0"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    for (const auto& row : rows_of(path)) {
      EXPECT_EQ(row.at("host_us").is_number(), launched) << row;
      if (launched) {
        EXPECT_GT(row["host_us"], 0.1);
      }
    }
    EXPECT_EQ(result.table.find(" host ") != std::string::npos, launched) << result.table;
  }
}

TEST(MoePerfRanks, SeparateLaunchesAreTimedBesideTensorParallel) {
  const std::string path = temporary("separate.json");
  ASSERT_EQ(run(kTensorParallel, {"--tokens", "5", "--json", path}).exit_code, 0);
  for (const auto& row : rows_of(path)) {
    EXPECT_EQ(row.at("baseline"), "separate");
    EXPECT_GT(row.at("baseline_us"), 0);
  }
}

}  // namespace
}  // namespace moelink::perf
