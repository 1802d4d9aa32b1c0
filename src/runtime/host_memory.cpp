#include "runtime/host_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

constexpr std::size_t kMinAlignment = 256;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

void* allocate_on_host(std::size_t size_bytes) {
  // Rows are read and written at random: with pages of 4 KB that is bound by the TLB. Half a huge page is waste enough.
  const std::size_t alignment = size_bytes >= 2 * kHugePageBytes ? kHugePageBytes : kMinAlignment;
  const std::size_t rounded_bytes = (size_bytes + alignment - 1) / alignment * alignment;
  void* memory = rounded_bytes >= size_bytes && rounded_bytes <= PTRDIFF_MAX
                     ? std::aligned_alloc(alignment, rounded_bytes)
                     : nullptr;
  if (memory == nullptr) {
    throw Error(ErrorCode::capacity, text("the host has no memory for a buffer of ", size_bytes, " bytes"));
  }
  if (alignment == kHugePageBytes) {
    madvise(memory, rounded_bytes, MADV_HUGEPAGE);  // advice: a kernel without huge pages refuses, and all is well
  }
  return memory;
}

}  // namespace moelink
