// Finds what the assembler of CUDA 13.0 gets wrong in a kernel that nests too deeply (docs/decisions/
// 0018-convergence-barriers-are-few.md).
//
// NOTE [saved barriers]. Lanes that part meet again at a convergence barrier: BSSY puts a mask of all that go in into one
// of a few registers of the warp, BSYNC waits for these. Where more are alive than there are registers, one is kept in
// general registers meanwhile:
//
//     BSSY B0 ...              the outer region; lanes part
//     BMOV.32.CLEAR R36, B0    save it
//     BSSY B0 ... BSYNC B0     an inner region
//     BMOV.32 B0, R36          restore it
//     BSYNC B0
//
// Lanes that come to the save apart read different masks: what the second group saves is the inner region of the first.
// Later it waits for too few, lanes run ahead, and the barriers of the block do not match any more. A save right behind
// the BSSY, where all lanes are still together, is good: ptxas has these around calls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moelink::test {

/// Where in a kernel's code, in bytes, a convergence barrier is saved that lanes may have parted behind.
[[nodiscard]] std::vector<std::int64_t> unsafe_barrier_saves(std::string_view code);

/// The same for all functions of a cubin, as "function: offset, offset\n"; empty: there are none. Throws Error if it is
/// none, or has no code.
[[nodiscard]] std::string describe_unsafe_barrier_saves(std::string_view cubin);

}  // namespace moelink::test
