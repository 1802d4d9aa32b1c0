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

TEST(EnginePerf, PrintsARowForEachStep) {
  const Outcome outcome =
      run({"--device",     "host", "--type",     "fp32", "--layers",  "2",   "--hidden",  "64", "--heads", "4",
           "--kv-heads",   "2",    "--head-dim", "16",   "--experts", "8",   "--top-k",   "2",  "--width", "32",
           "--vocabulary", "100",  "--prefill",  "5,9",  "--decode",  "1,3", "--context", "20", "-n",      "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.printed;
  std::istringstream lines(outcome.printed);
  int num_rows = 0;
  for (std::string line; std::getline(lines, line);) {
    num_rows += !line.empty() && line[0] != '#' && line.find("calls") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(num_rows, 4) << outcome.printed;
  EXPECT_NE(outcome.printed.find("all finite"), std::string::npos) << outcome.printed;
}

TEST(EnginePerf, SaysWhatRowsAreQuantisedTo) {
  const Outcome outcome =
      run({"--device",     "host", "--payload",  "nvfp4", "--layers",  "1", "--hidden",  "64", "--heads", "4",
           "--kv-heads",   "2",    "--head-dim", "16",    "--experts", "8", "--top-k",   "2",  "--width", "32",
           "--vocabulary", "100",  "--prefill",  "5",     "--decode",  "1", "--context", "20", "-n",      "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.printed;
  EXPECT_NE(outcome.printed.find("bf16; payload nvfp4"), std::string::npos) << outcome.printed;
  EXPECT_NE(outcome.printed.find("all finite"), std::string::npos) << outcome.printed;
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
