// What ml_dtypes makes of bf16 (tests/data/quantize/make.py).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace moelink::test {

using Bytes = std::vector<unsigned char>;

inline Bytes read_fixture(const std::string& name) {
  std::ifstream file(std::string(MOELINK_QUANTIZE_DATA) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name << " is missing";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Every bf16 bit pattern, in order.
inline std::vector<std::uint16_t> all_bf16() {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

}  // namespace moelink::test
