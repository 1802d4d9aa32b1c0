// Whether kernels can be compiled here.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "jit/nvrtc.hpp"
#include "moelink/error.hpp"

namespace moelink::test {

/// Why kernels cannot be compiled here; empty if they can.
inline std::string no_compiler_reason() {
#if MOELINK_HAVE_CUDA
  try {
    (void)Nvrtc::get();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
#else
  return "built without the CUDA toolkit";
#endif
}

}  // namespace moelink::test

/// Skips a test, or in SetUp the tests of a fixture, with the reason.
#define MOELINK_NEEDS_NVRTC() \
  if (const std::string reason = ::moelink::test::no_compiler_reason(); !reason.empty()) GTEST_SKIP() << reason
