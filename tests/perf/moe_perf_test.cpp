// moe_perf as a program, on shapes small enough for any machine.
#include "perf/moe/moe_perf.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace moelink::perf {
namespace {

const std::vector<std::string> kSmall = {"--device", "host", "--threads", "2",  "--model", "olmoe",  "--hidden",
                                         "64",       "-n",   "2",         "-w", "1",       "--sets", "2"};

struct Outcome {
  int exit_code;
  std::string table;
  std::string errors;
};

Outcome run(const std::vector<std::string>& arguments, const MoeHooks& hooks = {}) {
  std::vector<const char*> argv = {"moe_perf"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream table;
  testing::internal::CaptureStderr();
  const int exit_code = run_moe_perf(static_cast<int>(argv.size()), argv.data(), table, hooks);
  return {exit_code, table.str(), testing::internal::GetCapturedStderr()};
}

Outcome run_small(std::vector<std::string> arguments, const MoeHooks& hooks = {}) {
  arguments.insert(arguments.begin(), kSmall.begin(), kSmall.end());
  return run(arguments, hooks);
}

std::string temporary(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / ("moelink_moe_perf_" + name)).string();
}

nlohmann::json rows_of(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)).at("rows"); }

class MoePerfTraffic : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(MoePerfTraffic, EveryValueIsRight) {
  std::vector<std::string> arguments = {"--tokens", "0,1,33"};
  arguments.insert(arguments.end(), GetParam().begin(), GetParam().end());
  const Outcome result = run_small(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.table << result.errors;
  EXPECT_NE(result.table.find("Wrong values: 0 OK"), std::string::npos) << result.table;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MoePerfTraffic,
    testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--routing", "zipf", "--alignment", "128"},
                    std::vector<std::string>{"--routing", "khot", "--layout", "batched"},
                    std::vector<std::string>{"--routing", "one", "--payload", "fp32", "--index", "int64"},
                    std::vector<std::string>{"--payload", "fp16", "--weights", "on_input"},
                    std::vector<std::string>{"--payload", "bytes", "--scale-bytes", "8", "--weights", "none"},
                    std::vector<std::string>{"--layout", "batched", "--capacity", "2"},
                    std::vector<std::string>{"--payload", "fp8", "--layout", "batched", "--capacity", "2"},
                    std::vector<std::string>{"--payload", "fp8-pow2", "--weights", "none", "--alignment", "16"},
                    std::vector<std::string>{"--payload", "mxfp8"}, std::vector<std::string>{"--payload", "mxfp4"},
                    std::vector<std::string>{"--payload", "nvfp4", "--prequantized"},
                    std::vector<std::string>{"--topk", "3", "--experts", "7", "--max-sms", "1"}));

TEST(MoePerf, WrongValueInDispatchIsFoundAndFailsTheRun) {
  MoeHooks hooks;
  hooks.after_dispatch = [](int, MutableMatrixView rows, StreamView) {
    static_cast<std::uint16_t*>(rows.data)[70] ^= 1;
  };
  const Outcome result = run_small({"--tokens", "33"}, hooks);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.table.find("FAILED"), std::string::npos) << result.table;
  EXPECT_NE(result.errors.find("dispatched row 1 column 6"), std::string::npos) << result.errors;
}

TEST(MoePerf, WrongElementOfAQuantizedRowIsFound) {
  MoeHooks hooks;
  hooks.after_dispatch = [](int, MutableMatrixView rows, StreamView) {
    static_cast<std::uint8_t*>(rows.data)[70] ^= 1;
  };
  const Outcome result = run_small({"--tokens", "33", "--payload", "fp8"}, hooks);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("dispatched row 1 column 6"), std::string::npos) << result.errors;
}

TEST(MoePerf, ErrorOfAQuantizedPayloadIsThatOfItsFormat) {
  const auto error_of = [](const std::string& payload) {
    const std::string path = temporary("error.json");
    EXPECT_EQ(run_small({"--tokens", "33", "--payload", payload, "--json", path}).exit_code, 0);
    const auto rows = rows_of(path);
    EXPECT_TRUE(rows[0]["error"].is_null());  // dispatch
    EXPECT_EQ(rows[1]["payload"], payload);
    return rows[1]["error"].is_null() ? -1.0 : rows[1]["error"].get<double>();
  };
  EXPECT_EQ(error_of("bf16"), -1);
  const double fp8 = error_of("fp8");
  EXPECT_GT(fp8, 0.005);
  EXPECT_LT(fp8, 0.05);
  const double nvfp4 = error_of("nvfp4");
  EXPECT_GT(nvfp4, 2 * fp8);
  EXPECT_LT(nvfp4, error_of("mxfp4"));
  EXPECT_LT(nvfp4, 0.2);
}

TEST(MoePerf, WrongValueInCombineIsFoundAndCounted) {
  const std::string path = temporary("wrong.json");
  MoeHooks hooks;
  hooks.after_combine = [](int, MutableMatrixView output, StreamView) {
    static_cast<std::uint16_t*>(output.data)[5] ^= 1;
  };
  EXPECT_EQ(run_small({"--tokens", "33", "-c", "3", "--json", path}, hooks).exit_code, 1);
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["wrong"], 0);      // dispatch
  EXPECT_EQ(rows[1]["wrong"], 3 * 2);  // one value in each of three rounds and two sets
}

TEST(MoePerf, JsonRowsHaveWhatReadersRelyOn) {
  const std::string path = temporary("schema.json");
  ASSERT_EQ(run_small({"--tokens", "0,33", "--reference", "naive", "--json", path}).exit_code, 0);
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    for (const char* key : {"mode", "device", "payload", "layout", "routing", "phase"}) {
      EXPECT_TRUE(row.at(key).is_string()) << key;
    }
    for (const char* key : {"ranks", "tokens", "hidden", "experts", "topk", "p50_us", "p99_us", "logical_gbps",
                            "wire_gbps", "limit_fraction", "wrong", "baseline_us"}) {
      EXPECT_TRUE(row.at(key).is_number()) << key;
    }
    EXPECT_GT(row["p50_us"], 0);
    EXPECT_GE(row["p99_us"], row["p50_us"]);
  }
  EXPECT_EQ(rows[2]["logical_bytes"], 33 * 8 * 64 * 2);
  EXPECT_EQ(rows[2]["wire_bytes"], 33 * 9 * 64 * 2);
  EXPECT_GT(rows[2]["limit_fraction"], 0);
  EXPECT_EQ(rows[0]["logical_bytes"], 0);
}

TEST(MoePerf, UncheckedIsSaidNotShownAsZeroWrong) {
  const std::string path = temporary("unchecked.json");
  const Outcome result = run_small({"--tokens", "4", "-c", "0", "--json", path});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.table.find("N/A"), std::string::npos);
  EXPECT_TRUE(rows_of(path)[0]["wrong"].is_null());
}

TEST(MoePerf, FlagsThatCannotBeFollowedExitWithTwoAndNameThem) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--model", "nonesuch"}, "nonesuch"},
      {{"--tokens", "1,x"}, "'x'"},
      {{"--tokens", "-5"}, "'-5'"},
      {{"--tokens", "1", "-b", "1"}, "--tokens"},
      {{"-b", "8", "-e", "4"}, "-b 8"},
      {{"--mode", "teleport"}, "teleport"},
      {{"--device", "toaster"}, "toaster"},
      {{"--device", "cuda:4000"}, "cuda:4000"},
      {{"--routing", "psychic"}, "psychic"},
      {{"--layout", "round"}, "round"},
      {{"--payload", "int3"}, "int3"},
      {{"--alignment", "3"}, "3 is not a power of two"},
      {{"--topk", "33"}, "33"},
      {{"--topk", "9", "--experts", "8"}, "top-k 9"},
      {{"-n", "0"}, "0"},
      {{"--json", "/nonesuch/x.json"}, "/nonesuch/x.json"},
      {{"--nonesuch"}, "--nonesuch"},
      {{"--tokens", "1,8M"}, "8388608 tokens of deepseek-v3 need"},
      {{"--tokens", "4K", "--sets", "1000"}, "1000 set(s)"},
      {{"--ranks", "2"}, "--mode local is for one rank"},
      {{"--ranks", "3", "--mode", "nvlink", "--tp-size", "2"}, "groups of 2"},
      {{"--mode", "tp", "--tp-size", "2", "--ranks", "2"}, "not for tp"},
      {{"--replicas", "2"}, "not for local"},
      {{"--fp32-partials"}, "whole sums"},
      {{"--sum", "push"}, "--sum push"},
      {{"--mode", "tp", "--ranks", "2", "--sum", "abacus"}, "abacus"},
      {{"--replicas", "0"}, "--replicas"},
      {{"--prequantized"}, "not bf16"},
      {{"--payload", "fp8", "--scale-bytes", "4"}, "--scale-bytes"},
      {{"--payload", "fp8", "--weights", "on_input"}, "--weights on_input"},
      {{"--payload", "fp8", "--baseline", "naive"}, "--baseline naive"},
      {{"--phase", "half"}, "half"},
      {{"--mode", "nvlink", "--ranks", "2", "--tokens-per-rank", "5"}, "1 numbers for 2 ranks"},
      {{"--mode", "nvlink", "--ranks", "2", "--tokens-per-rank", "5,x"}, "'x'"},
      {{"--mode", "nvlink", "--ranks", "2", "--tp-size", "2", "--tokens-per-rank", "5,6"}, "rank 1 has 6 tokens"},
      {{"--mode", "tp", "--ranks", "2", "--tokens-per-rank", "5,6"}, "rank 1 has 6 tokens"},
      {{"--mode", "tp", "--ranks", "2", "--baseline", "naive"}, "--baseline naive"},
      {{"--baseline", "allgather"}, "--baseline allgather"},
      {{"--mode", "nvlink", "--ranks", "2", "--replicas", "2", "--baseline", "mpi"}, "--baseline mpi"},
  };
  for (const auto& [arguments, named] : cases) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments.front();
    EXPECT_NE(result.errors.find(named), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("--help"), std::string::npos) << result.errors;
  }
}

TEST(MoePerf, LaterFlagOverridesAnEarlierOne) {
  const Outcome result = run_small({"--tokens", "4096", "--tokens", "3"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.table.find("4096"), std::string::npos) << result.table;
}

TEST(MoePerf, ShapeThatTheLibraryRefusesIsAnErrorInWords) {
  const Outcome result = run({"--device", "host", "--hidden", "2052", "--tokens", "4"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("multiple of 16"), std::string::npos) << result.errors;
}

TEST(MoePerf, HelpNamesEveryFlagAndTheEnvironment) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"--help"}).exit_code, 0);
  const std::string help = testing::internal::GetCapturedStdout();
  for (const char* word : {"-b,",         "-e,",
                           "-f,",         "-n,",
                           "-w,",         "-c,",
                           "-G,",         "--tokens",
                           "--model",     "--mode",
                           "--device",    "--routing",
                           "--layout",    "--alignment",
                           "--payload",   "--topk",
                           "--experts",   "--hidden",
                           "--json",      "--csv",
                           "--reference", "--baseline",
                           "--seed",      "--threads",
                           "--ranks",     "--tp-size",
                           "--phase",     "--replicas",
                           "--sms",       "--tokens-per-rank",
                           "deepseek-v3", "MOELINK_HOST_THREADS",
                           "Exit code"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace moelink::perf
