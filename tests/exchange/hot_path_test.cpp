// What a call must not do once an Exchange is constructed.
#include <atomic>
#include <cstdlib>
#include <new>

#include "exchange/runner.hpp"

namespace {

std::atomic<std::int64_t> num_allocations{0};

void* counted(std::size_t size_bytes, std::size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::aligned_alloc(alignment, (size_bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Every allocation of every thread of this program.
void* operator new(std::size_t size_bytes) { return counted(size_bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t size_bytes, std::align_val_t alignment) {
  return counted(size_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace moelink::test {
namespace {

class HotPath : public DeviceTest {};

TEST_P(HotPath, AllocatesNothing) {
  const Stream stream(device());
  for (const std::int64_t tokens : {8, 900}) {
    const Problem problem({.num_tokens = tokens, .num_experts = 32, .top_k = 4, .hidden = 64, .alignment = 8},
                          Routing::garbage);
    Runner runner(problem, stream);
    const DispatchArgs dispatch = runner.dispatch_args();
    const CombineArgs combine = runner.combine_args({});
    const auto call = [&] {
      (void)runner.exchange().dispatch(dispatch, stream);
      (void)runner.exchange().host_counts(stream);
      runner.exchange().combine(combine, stream);
      (void)runner.exchange().data_errors();
    };
    for (int i = 0; i < 20; ++i) call();  // the host's queue becomes as long as it gets
    stream.synchronize();
    const std::int64_t before = num_allocations.load();
    for (int i = 0; i < 20; ++i) call();
    EXPECT_EQ(num_allocations.load() - before, 0);
    stream.synchronize();
  }
}

MOELINK_TEST_ON_DEVICES(HotPath);

}  // namespace
}  // namespace moelink::test
