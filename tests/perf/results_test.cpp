#include "perf/common/results.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "moelink/error.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Results, NothingMeasuredIsNoSuccess) { EXPECT_EQ(Results("tool").exit_code(), 1); }

TEST(Results, OneWrongValueIsNoSuccessHoweverManyRowsAreRight) {
  Results results("tool");
  results.add({{"a", 1}}, 0);
  results.add({{"a", 2}}, std::nullopt);
  EXPECT_EQ(results.exit_code(), 0);
  results.add({{"a", 3}}, 1);
  results.add({{"a", 4}}, 0);
  EXPECT_EQ(results.exit_code(), 1);
  EXPECT_EQ(results.wrong(), 1);
}

TEST(Results, FilesHoldEveryRowAndQuoteWhatNeedsIt) {
  const std::string base = (std::filesystem::path(testing::TempDir()) / "moelink_results_test").string();
  Results results("tool");
  results.add({{"name", "a,\"b\""}, {"us", 1.5}, {"wrong", nullptr}}, std::nullopt);
  results.add({{"name", "c"}, {"us", 2}, {"wrong", 0}}, 0);
  results.write_csv(base + ".csv");
  EXPECT_EQ(read(base + ".csv"), "name,us,wrong\n\"a,\"\"b\"\"\",1.5,\nc,2,0\n");
  results.write_json(base + ".json");
  const auto document = nlohmann::json::parse(read(base + ".json"));
  EXPECT_EQ(document["tool"], "tool");
  ASSERT_EQ(document["rows"].size(), 2U);
  EXPECT_EQ(document["rows"][1]["us"], 2);
  EXPECT_TRUE(document["rows"][0]["wrong"].is_null());
}

TEST(Results, UnwritableFilesAreErrorsBeforeAndAfter) {
  Results results("tool");
  results.add({{"a", 1}}, 0);
  EXPECT_THROW(require_writable("/nonesuch/x.json"), UsageError);
  EXPECT_THROW(results.write_json("/nonesuch/x.json"), Error);
}

}  // namespace
}  // namespace moelink::perf
