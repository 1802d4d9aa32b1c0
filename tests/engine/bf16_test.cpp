// Models in bf16 on the host: it rounds where a GPU does, so that what this costs is seen without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/bf16_errors.hpp"

namespace moelink::engine {
namespace {

class Bf16Model : public ::testing::TestWithParam<const char*> {};

TEST_P(Bf16Model, ErrorsAreThoseOfItsRounding) { testing::expect_errors_of_rounding(GetParam(), Device::host()); }

INSTANTIATE_TEST_SUITE_P(Models, Bf16Model, ::testing::Values("tiny-qwen3-moe", "tiny-olmoe", "tiny-mixtral"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moelink::engine
