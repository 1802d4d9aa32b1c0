// perf/quantize: the tool in process.
#include "perf/quantize/quantize_perf.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace moelink::perf {
namespace {

int run(std::vector<const char*> arguments, std::string& table) {
  arguments.insert(arguments.begin(), "quantize_perf");
  std::ostringstream out;
  const int code = run_quantize_perf(static_cast<int>(arguments.size()), arguments.data(), out);
  table = out.str();
  return code;
}

TEST(QuantizePerf, MeasuresAndChecksEveryFormat) {
  std::string table;
  EXPECT_EQ(run({"--device", "host", "--tokens", "0,1,33", "--hidden", "264", "-n", "2", "-w", "1"}, table), 0);
  for (const char* format : {" fp8 ", "fp8_pow2", "mxfp8", "mxfp4", "nvfp4"}) {
    EXPECT_NE(table.find(format), std::string::npos) << table;
  }
  EXPECT_NE(table.find("Wrong values: 0 OK"), std::string::npos) << table;
}

TEST(QuantizePerf, UnknownFormatsAreRefused) {
  std::string table;
  EXPECT_EQ(run({"--device", "host", "--format", "fp8,int3"}, table), 2);
}

}  // namespace
}  // namespace moelink::perf
