#include "runtime/cuda_backend.hpp"

#if !MOELINK_HAVE_CUDA

#include "moelink/error.hpp"

namespace moelink::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "this build of moelink has no CUDA backend; configure it where the CUDA toolkit is found, or use "
              "Device::host()");
}

}  // namespace

int device_count() noexcept { return 0; }

void* allocate(int, std::size_t) { refuse(); }
void release(int, void*) noexcept {}

void* allocate_pinned(int, std::size_t) { refuse(); }
void release_pinned(int, void*) noexcept {}
std::string unreachable_because(int, const void*) { refuse(); }
int num_sms(int) { refuse(); }
int max_scratch_bytes(int) { refuse(); }

void* create_stream(int) { refuse(); }
void destroy_stream(int, void*) noexcept {}
void synchronize_stream(StreamView) { refuse(); }
void copy(void*, const void*, std::size_t, StreamView) { refuse(); }
void fill(void*, unsigned char, std::size_t, StreamView) { refuse(); }

void* create_event(int) { refuse(); }
void destroy_event(int, void*) noexcept {}
void record_event(void*, StreamView) { refuse(); }
void synchronize_event(int, void*) { refuse(); }
double elapsed_us(int, void*, void*) { refuse(); }

void* record_graph(StreamView, const std::function<void()>&) { refuse(); }
void launch_graph(void*, StreamView) { refuse(); }
void destroy_graph(int, void*) noexcept {}

}  // namespace moelink::cuda

#endif
