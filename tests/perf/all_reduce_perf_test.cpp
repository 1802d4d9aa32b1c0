// all_reduce_perf as a program, on messages small enough for any machine.
#include "perf/all_reduce/all_reduce_perf.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace moelink::perf {
namespace {

const std::vector<std::string> kSmall = {"--device", "host", "--ranks", "3", "-b", "1", "-e",     "64K",
                                         "-f",       "16",   "-n",      "2", "-w", "1", "--sets", "2"};

struct Outcome {
  int exit_code;
  std::string table;
  std::string errors;
};

Outcome run(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"all_reduce_perf"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream table;
  testing::internal::CaptureStderr();
  const int exit_code = run_all_reduce_perf(static_cast<int>(argv.size()), argv.data(), table);
  return {exit_code, table.str(), testing::internal::GetCapturedStderr()};
}

Outcome run_small(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kSmall.begin(), kSmall.end());
  return run(arguments);
}

std::string temporary(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / ("moelink_all_reduce_perf_" + name)).string();
}

nlohmann::json rows_of(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)).at("rows"); }

class AllReducePerfShapes : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(AllReducePerfShapes, EveryValueIsRight) {
  const Outcome result = run_small(GetParam());
  EXPECT_EQ(result.exit_code, 0) << result.table << result.errors;
  EXPECT_NE(result.table.find("Wrong values: 0 OK"), std::string::npos) << result.table;
}

INSTANTIATE_TEST_SUITE_P(Kinds, AllReducePerfShapes,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--ranks", "6"},
                                         std::vector<std::string>{"--ranks", "1", "-d", "fp16"},
                                         std::vector<std::string>{"-d", "fp32", "--in-place"},
                                         std::vector<std::string>{"--ranks", "2", "--algorithm", "each", "-c", "2"},
                                         std::vector<std::string>{"--algorithm", "each", "-c", "2"}));

TEST(AllReducePerf, EachAlgorithmHasItsRowOnEverySizeAndNamesPlanAndMemory) {
  const std::string path = temporary("each.json");
  ASSERT_EQ(run_small({"--algorithm", "each", "-b", "1K", "-e", "16K", "--json", path}).exit_code, 0);
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 2U * 3U);
  const char* names[] = {"push", "stream", "two_shot"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["algorithm"], names[i % 3]);
    EXPECT_EQ(rows[i]["size_bytes"], i < 3 ? 1024 : 16384);
    EXPECT_NE(rows[i]["plan"].get<std::string>().find("memory=threads"), std::string::npos);
  }
}

TEST(AllReducePerf, JsonRowsHaveWhatReadersRelyOn) {
  const std::string path = temporary("schema.json");
  ASSERT_EQ(run_small({"--json", path}).exit_code, 0);
  for (const auto& row : rows_of(path)) {
    for (const char* key : {"tool", "device", "type", "algorithm", "plan"}) {
      EXPECT_TRUE(row.at(key).is_string()) << key;
    }
    for (const char* key :
         {"ranks", "nodes", "size_bytes", "count", "p50_us", "p99_us", "algorithm_gbps", "bus_gbps", "wrong"}) {
      EXPECT_TRUE(row.at(key).is_number()) << key;
    }
    EXPECT_GT(row["p50_us"], 0);
    EXPECT_GE(row["p99_us"], row["p50_us"]);
    EXPECT_NEAR(row["bus_gbps"].get<double>(), row["algorithm_gbps"].get<double>() * 4 / 3, 1e-9);
  }
}

TEST(AllReducePerf, BaselineThatCannotRunHereIsSaidAndTheRestIsMeasured) {
  const Outcome result = run_small({"-b", "1K", "-e", "1K", "--baseline", "nccl"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.table.find("nccl: not possible"), std::string::npos) << result.table;
}

TEST(AllReducePerf, AlgorithmThatCannotRunHereFailsTheRunWithTheReason) {
  const Outcome result = run_small({"--algorithm", "nccl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("runs on the host"), std::string::npos) << result.errors;
}

TEST(AllReducePerf, UncheckedIsSaidNotShownAsZeroWrong) {
  const std::string path = temporary("unchecked.json");
  const Outcome result = run_small({"-b", "1K", "-e", "1K", "-c", "0", "--json", path});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.table.find("not checked"), std::string::npos);
  EXPECT_TRUE(rows_of(path)[0]["wrong"].is_null());
}

TEST(AllReducePerf, FlagsThatCannotBeFollowedExitWithTwoAndNameThem) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-b", "8", "-e", "4"}, "-b 8"},
      {{"-b", "x"}, "'x'"},
      {{"-d", "int8"}, "int8"},
      {{"--algorithm", "gossip"}, "gossip"},
      {{"--ranks", "-1"}, "-1"},
      {{"--baseline", "mpi"}, "mpi"},
      {{"--device", "toaster"}, "toaster"},
      {{"-n", "0"}, "0"},
      {{"--nonesuch"}, "--nonesuch"},
      {{"--json", "/nonesuch/x.json"}, "/nonesuch/x.json"},
  };
  for (const auto& [arguments, named] : cases) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments.front();
    EXPECT_NE(result.errors.find(named), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("--help"), std::string::npos) << result.errors;
  }
}

}  // namespace
}  // namespace moelink::perf
