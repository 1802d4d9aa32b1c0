// perf/put: the tool in process, over every transport that needs no hardware.
#include "perf/put/put_perf.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace moelink::perf {
namespace {

int run(std::vector<const char*> arguments, std::string& table) {
  arguments.insert(arguments.begin(), "put_perf");
  std::ostringstream out;
  const int code = run_put_perf(static_cast<int>(arguments.size()), arguments.data(), out);
  table = out.str();
  return code;
}

TEST(PutPerf, MeasuresAndChecksEverySizeOverEveryTransportNamed) {
  std::string table;
  const char* transports = MOELINK_HAVE_UCX ? "loopback,ucx" : "loopback";
  EXPECT_EQ(run({"--ranks", "2", "--transport", transports, "--sizes", "0,1,4097", "-n", "20", "-c", "2"}, table), 0);
  EXPECT_NE(table.find("loopback: "), std::string::npos) << table;
  EXPECT_EQ(table.find("ucx: ") != std::string::npos, MOELINK_HAVE_UCX == 1) << table;
  EXPECT_NE(table.find("Wrong values: 0 OK"), std::string::npos) << table;
}

TEST(PutPerf, AnOddNumberOfRanksAndUnknownTransportsAreRefused) {
  std::string table;
  EXPECT_NE(run({"--ranks", "3"}, table), 0);
  EXPECT_NE(run({"--ranks", "2", "--transport", "udp"}, table), 0);
}

}  // namespace
}  // namespace moelink::perf
