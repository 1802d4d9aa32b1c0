// A kernel as a user writes it. kernel_set_test.cpp also hands this file to the compiler for GPUs.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink::test {

struct AddSpec {
  i32 summand;
  i32 threads;

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(summand, threads);
  }
};

struct AddArgs {
  i32* values;
  i64 count;
};

struct UserAdd {
  static constexpr const char* kName = "UserAdd";
  static constexpr const char* kHeader = "user/user_kernel.cuh";
  using Spec = AddSpec;
  using Args = AddArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const i64 step = static_cast<i64>(ex.num_blocks()) * spec().threads;
    for (i64 i = static_cast<i64>(ex.block()) * spec().threads + ex.thread(); i < args.count; i += step) {
      args.values[i] += spec().summand;
    }
  }
};

}  // namespace moelink::test
