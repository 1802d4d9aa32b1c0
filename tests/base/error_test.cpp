// moelink/error.hpp
#include "moelink/error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace moelink {
namespace {

constexpr ErrorCode kAllCodes[] = {
    ErrorCode::invalid_argument, ErrorCode::out_of_order, ErrorCode::capacity, ErrorCode::unsupported, ErrorCode::data,
    ErrorCode::mismatch,         ErrorCode::timeout,      ErrorCode::peer,     ErrorCode::aborted,     ErrorCode::cuda,
    ErrorCode::compile,          ErrorCode::system,
};

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const ErrorCode code : kAllCodes) names.insert(std::string(name_of(code)));
  EXPECT_EQ(names.size(), std::size(kAllCodes));
  EXPECT_EQ(names.count("unknown"), 0u);
}

TEST(Error, CodeOutsideTheEnumerationIsNamedUnknownAndDoesNotReadPastATable) {
  EXPECT_EQ(name_of(static_cast<ErrorCode>(12345)), "unknown");
  EXPECT_EQ(name_of(static_cast<ErrorCode>(-1)), "unknown");
}

TEST(Error, WhatLosesNeitherCodeNorSentenceNorPlace) {
  const auto here = std::source_location::current();
  const Error error(ErrorCode::capacity, "max_rows is 12, the routing needs 13; raise max_rows", here);
  EXPECT_EQ(std::string(error.what()),
            "capacity: max_rows is 12, the routing needs 13; raise max_rows [error_test.cpp:" +
                std::to_string(here.line()) + "]");
  EXPECT_EQ(error.code(), ErrorCode::capacity);
  EXPECT_EQ(error.where().line(), here.line());
}

TEST(Error, PlaceIsTheThrowNotTheConstructor) {
  unsigned line = 0;
  try {
    line = __LINE__ + 1;
    throw Error(ErrorCode::data, "two ids were dropped");
  } catch (const Error& error) {
    EXPECT_EQ(error.where().line(), line);
  }
}

TEST(Error, IsCaughtAsStandardException) { EXPECT_THROW(throw Error(ErrorCode::timeout, "x"), std::runtime_error); }

}  // namespace
}  // namespace moelink
