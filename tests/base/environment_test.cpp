// base/environment.hpp
#include "base/environment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "moelink/environment.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

Environment read(const std::map<std::string, std::string>& variables) {
  return Environment::read([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  });
}

TEST(Environment, CacheDirectoryFollowsTheOrderOfTheDocumentation) {
  EXPECT_EQ(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}, {"MOELINK_CACHE_DIR", "/m"}}).cache_directory, "/m");
  EXPECT_EQ(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache_directory, "/x/moelink");
  EXPECT_EQ(read({{"HOME", "/h"}}).cache_directory, "/h/.cache/moelink");
  EXPECT_EQ(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "relative"}}).cache_directory, "/h/.cache/moelink");
  EXPECT_EQ(read({}).cache_directory, "");
}

TEST(Environment, EmptyMeansUnset) {
  EXPECT_TRUE(read({{"MOELINK_CACHE", ""}}).cache);
  EXPECT_FALSE(read({{"MOELINK_CACHE", "0"}}).cache);
}

TEST(Environment, EitherVariableForbidsMulticast) {
  EXPECT_TRUE(read({}).nvls);
  EXPECT_TRUE(read({{"MOELINK_NVLS", "1"}, {"NCCL_NVLS_ENABLE", "2"}}).nvls);
  EXPECT_FALSE(read({{"MOELINK_NVLS", "0"}, {"NCCL_NVLS_ENABLE", "1"}}).nvls);
  EXPECT_FALSE(read({{"MOELINK_NVLS", "1"}, {"NCCL_NVLS_ENABLE", "0"}}).nvls);
}

TEST(Environment, PackIsAllowedUnlessForbidden) {
  EXPECT_TRUE(read({}).pack);
  EXPECT_FALSE(read({{"MOELINK_PACK", "0"}}).pack);
}

TEST(Environment, ValueThatCannotBeUnderstoodIsRefusedByName) {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"MOELINK_CACHE", "yes"}, {"MOELINK_HOST_THREADS", "-1"}, {"MOELINK_COMPILE_THREADS", "4x"}}) {
    try {
      (void)read({{name, value}});
      ADD_FAILURE() << name << "=" << value << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(name + "=" + value), std::string::npos) << error.what();
    }
  }
}

TEST(Environment, EveryVariableIsInTheHelp) {
  std::map<std::string, bool> asked;
  (void)Environment::read([&](const char* name) -> std::optional<std::string> {
    asked[name] = true;
    return std::nullopt;
  });
  const std::string help = describe_environment();
  for (const auto& [name, unused] : asked) {
    EXPECT_TRUE(help.find("  " + name + " ") != std::string::npos || !name.starts_with("MOELINK_")) << name;
  }
}

}  // namespace
}  // namespace moelink
