// Ranks as threads on one or more real devices.
#include "cuda_case.hpp"

namespace moelink::test {
namespace {

INSTANTIATE_TEST_SUITE_P(CudaThreads, MemoryConformance, ::testing::Values(cuda_case(MemoryKind::threads)), case_name);

}  // namespace
}  // namespace moelink::test
