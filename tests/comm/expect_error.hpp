// What a call must throw.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moelink/error.hpp"

namespace moelink::testing {

/// `run` must throw Error with `code` whose words contain each of `words`.
template <class Run>
void expect_error(ErrorCode code, const std::vector<std::string>& words, Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << '"' << word << "\" is not in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected " << name_of(code);
}

}  // namespace moelink::testing
