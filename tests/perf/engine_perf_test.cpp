// engine_perf on a tiny model: its table is whole, and flags that cannot be followed are refused.
#include "perf/engine/engine_perf.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace moelink::perf {
namespace {

struct Outcome {
  int exit_code = 0;
  std::string printed;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "engine_perf");
  std::ostringstream out;
  const int exit_code = run_engine_perf(static_cast<int>(arguments.size()), arguments.data(), out);
  return {exit_code, out.str()};
}

// With flags of a tiny model, for the host, and `more`.
Outcome run_tiny(std::vector<const char*> more) {
  std::vector<const char*> arguments = {
      "--device",     "host", "--type",     "fp32", "--layers",  "2", "--hidden",  "64", "--heads", "4",
      "--kv-heads",   "2",    "--head-dim", "16",   "--experts", "8", "--top-k",   "2",  "--width", "32",
      "--vocabulary", "100",  "--prefill",  "5",    "--decode",  "3", "--context", "20", "-n",      "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

struct Row {
  std::string phase;
  double rows = 0;
  double step_us = 0;
  double tokens_per_s = 0;
  std::string launch;
  std::string wrong;
};

std::vector<Row> rows_of(const Outcome& outcome) {
  std::vector<Row> rows;
  std::istringstream lines(outcome.printed);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream cells(line);
    Row row;
    double unused = 0;
    cells >> row.phase >> row.rows >> unused >> row.step_us >> row.tokens_per_s >> unused >> unused >> row.launch >>
        row.wrong;
    EXPECT_TRUE(cells) << line;
    rows.push_back(row);
  }
  return rows;
}

TEST(EnginePerf, PrintsARowForEachStep) {
  const Outcome outcome = run_tiny({"--prefill", "5,9", "--decode", "1,3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.printed;
  const std::vector<Row> rows = rows_of(outcome);
  ASSERT_EQ(rows.size(), 4U) << outcome.printed;
  for (const Row& row : rows) {
    EXPECT_EQ(row.launch, "calls");
    EXPECT_EQ(row.wrong, "0");
  }
  EXPECT_NE(outcome.printed.find("all finite"), std::string::npos) << outcome.printed;
}

TEST(EnginePerf, SaysWhatRowsAreQuantisedTo) {
  const Outcome outcome = run_tiny({"--type", "bf16", "--payload", "nvfp4"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.printed;
  EXPECT_NE(outcome.printed.find("bf16; payload nvfp4"), std::string::npos) << outcome.printed;
  EXPECT_NE(outcome.printed.find("all finite"), std::string::npos) << outcome.printed;
}

struct RanksCase {
  const char* name;
  std::vector<const char*> flags;
  int batches;  ///< of rows of their own
};

class EnginePerfRanks : public testing::TestWithParam<RanksCase> {};

TEST_P(EnginePerfRanks, CountTheTokensOfAllRanksOnce) {
  const Outcome outcome = run_tiny(GetParam().flags);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.printed;
  const std::vector<Row> rows = rows_of(outcome);
  ASSERT_EQ(rows.size(), 2U) << outcome.printed;  // of one rank, not of each
  for (const Row& row : rows) {
    const double expected = row.rows * GetParam().batches / row.step_us * 1e6;
    EXPECT_NEAR(row.tokens_per_s, expected, expected * 0.01 + 1) << outcome.printed;  // the time has four digits
    EXPECT_EQ(row.wrong, "0");
  }
  EXPECT_EQ(rows[0].rows, 5);
  EXPECT_EQ(rows[1].rows, 3);
}

INSTANTIATE_TEST_SUITE_P(
    Host, EnginePerfRanks,
    testing::Values(RanksCase{"one", {"--ranks", "1", "--mode", "local"}, 1},
                    RanksCase{"automatic", {"--ranks", "2"}, 2},
                    RanksCase{"nvlink", {"--ranks", "3", "--mode", "nvlink"}, 3},
                    RanksCase{"p2p", {"--ranks", "2", "--mode", "p2p", "--ranks-per-node", "1"}, 2},
                    RanksCase{"nvlink_mxfp8", {"--ranks", "2", "--mode", "nvlink", "--payload", "mxfp8"}, 2},
                    RanksCase{"tensor", {"--ranks", "2", "--parallel", "tensor"}, 1},
                    RanksCase{"tensor_named", {"--ranks", "4", "--parallel", "tensor", "--mode", "tp"}, 1}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(EnginePerf, RanksWithFlagsThatDoNotGoTogetherAreRefused) {
  EXPECT_EQ(run_tiny({"--ranks", "2", "--mode", "local"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--ranks", "2", "--mode", "nvlink", "--parallel", "tensor"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--ranks", "2", "--mode", "p2p", "--parallel", "tensor"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--ranks", "2", "--mode", "tensor_parallel"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--ranks", "2", "--mode", "tp", "--parallel", "data"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--ranks", "3", "--parallel", "tensor"}).exit_code, 2);  // 4 heads
  EXPECT_EQ(run_tiny({"--ranks", "-1"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--mode", "nvlinks"}).exit_code, 2);
  EXPECT_EQ(run_tiny({"--parallel", "expert"}).exit_code, 2);
}

TEST(EnginePerf, FlagsThatCannotBeFollowedAreRefused) {
  EXPECT_EQ(run({"--device", "host", "--kv-heads", "3"}).exit_code, 2);
  EXPECT_EQ(run({"--device", "host", "--top-k", "33"}).exit_code, 2);
  EXPECT_EQ(run({"--device", "host", "--type", "fp16"}).exit_code, 2);
  EXPECT_EQ(run({"--device", "host", "--prefill", "0"}).exit_code, 2);
  EXPECT_EQ(run({"--layers", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace moelink::perf
