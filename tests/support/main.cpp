// main() of every test executable: as GoogleTest's own, but running no test at all is a failure, not a success, and
// multicast (NVLS) stays off unless the user sets MOELINK_TEST_NVLS=1.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* nvls = std::getenv("MOELINK_TEST_NVLS");
  if (nvls == nullptr || std::string_view(nvls) != "1") {
    ::setenv("MOELINK_NVLS", "0", 1);
  }
  const auto& all = *testing::UnitTest::GetInstance();
  if (all.total_test_count() == 0) {
    std::fprintf(stderr, "%s contains no tests\n", argv[0]);
    return 1;
  }
  const int failed = RUN_ALL_TESTS();
  if (!GTEST_FLAG_GET(list_tests) && all.test_to_run_count() == 0) {
    std::fprintf(stderr, "no test of %s matches the filter '%s'\n", argv[0], GTEST_FLAG_GET(filter).c_str());
    return 1;
  }
  return failed;
}
