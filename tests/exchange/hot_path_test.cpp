// What a call must not do once an Exchange is constructed.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "exchange/runner.hpp"
#include "runtime/host_queue.hpp"

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

/// Enqueues while the host's queue stands still, so that everything is in it at once. A GPU's stream has no such queue.
void behind_a_gate(const Stream& stream, const std::function<void()>& enqueue) {
  std::atomic<bool> is_open{stream.device().is_cuda()};
  if (!is_open) {
    stream.view().host_queue()->enqueue([&is_open] { is_open.wait(false); });
  }
  enqueue();
  is_open = true;
  is_open.notify_all();
  stream.synchronize();
}

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
    constexpr int kCalls = 20;
    const auto call_all = [&] {
      for (int i = 0; i < kCalls; ++i) call();
    };
    behind_a_gate(stream, call_all);  // the host's queue becomes as long as it gets
    const std::int64_t before = num_allocations.load();
    call_all();
    EXPECT_EQ(num_allocations.load() - before, 0);
    stream.synchronize();
  }
}

MOELINK_TEST_ON_DEVICES(HotPath);

}  // namespace
}  // namespace moelink::test
