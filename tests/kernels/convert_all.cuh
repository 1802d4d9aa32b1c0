// Test kernel: conversions and sums over arrays of bit patterns, to be compared with the host's.
#pragma once

#include "moelink/device/primitives/convert.cuh"

namespace moelink::test {

struct ConvertAll {
  static constexpr const char* kName = "ConvertAll";
  static constexpr const char* kHeader = "moelink/test/convert_all.cuh";

  struct Spec {
    i32 threads = 0;
    constexpr auto fields(auto&& visit) const { return visit(threads); }
  };

  struct Args {
    const u32* floats = nullptr;  ///< [count] bits
    i32 count = 0;
    u32* from_bf16 = nullptr;  ///< [65536] what each pattern becomes
    u32* from_fp16 = nullptr;  ///< [65536]
    u16* to_bf16 = nullptr;    ///< [count]
    u16* to_fp16 = nullptr;    ///< [count]
    u32* sums = nullptr;       ///< [count] floats[i] * floats[i + 1] + floats[i + 2], indices modulo count
  };

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S, const Args& args) {
    const int first = ex.block() * ex.num_threads() + ex.thread();
    const int step = ex.num_blocks() * ex.num_threads();
    for (int i = first; i < 65536; i += step) {
      args.from_bf16[i] = float_bits(to_float<Element::bfloat16>(static_cast<u16>(i)));
      args.from_fp16[i] = float_bits(to_float<Element::float16>(static_cast<u16>(i)));
    }
    for (int i = first; i < args.count; i += step) {
      const float a = float_from_bits(args.floats[i]);
      const float b = float_from_bits(args.floats[(i + 1) % args.count]);
      const float c = float_from_bits(args.floats[(i + 2) % args.count]);
      args.to_bf16[i] = from_float<Element::bfloat16>(a);
      args.to_fp16[i] = from_float<Element::float16>(a);
      args.sums[i] = float_bits(add_rn(mul_rn(a, b), c));
    }
  }
};

}  // namespace moelink::test
