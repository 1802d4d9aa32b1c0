// Completions that servers under test are asked for, and the text that the reference has for them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/completion_client.hpp"
#include "engine/generation.hpp"
#include "engine/serving.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace moelink::engine::testing {

inline const Tokenizer& tokenizer() {
  static const Tokenizer the(data_folder(kServedModel) / "tokenizer.json");
  return the;
}

inline const std::vector<Expected>& cases() {
  static const std::vector<Expected> all = [] {
    std::vector<Expected> found = expected_of(kServedModel);
    std::erase_if(found, [](const Expected& c) { return c.prompt.size() > 40; });
    return found;
  }();
  return all;
}

inline Json greedy(const Expected& expected, bool stream = false) {
  return {{"prompt", expected.prompt},
          {"max_tokens", expected.greedy.size()},
          {"temperature", 0},
          {"ignore_eos", true},
          {"stream", stream}};
}

/// Generates for long, unless somebody ends it.
inline Json endless(bool stream = true) {
  return {{"prompt", "The dispatch kernel"},
          {"max_tokens", 4000},
          {"temperature", 0},
          {"ignore_eos", true},
          {"stream", stream}};
}

inline void expect_greedy(const Seen& seen, const Expected& expected) {
  EXPECT_EQ(seen.status, 200) << seen.error;
  EXPECT_EQ(seen.text, tokenizer().decode(expected.greedy));
  EXPECT_EQ(seen.finish_reason, "length");
}

}  // namespace moelink::engine::testing
