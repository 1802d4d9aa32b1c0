// What the runtime asks of CUDA, without its types. Two bodies: cuda_backend.cpp on the driver, and no_cuda_backend.cpp
// for builds without the toolkit, which refuses. Functions that release something do not throw: there is nobody to
// tell.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "moelink/stream.hpp"

namespace moelink::cuda {

/// Usable devices; 0 without driver.
[[nodiscard]] int device_count() noexcept;

[[nodiscard]] void* allocate(int ordinal, std::size_t size_bytes);
void release(int ordinal, void* memory) noexcept;

/// Host memory that the device reads and writes at the same address.
[[nodiscard]] void* allocate_pinned(int ordinal, std::size_t size_bytes);
void release_pinned(int ordinal, void* memory) noexcept;

/// What keeps a device from using memory at `pointer`, in words ("host memory that ..."); empty if nothing does.
[[nodiscard]] std::string unreachable_because(int ordinal, const void* pointer);

[[nodiscard]] int num_sms(int ordinal);
/// Most shared memory one block may ask for.
[[nodiscard]] int max_scratch_bytes(int ordinal);

[[nodiscard]] void* create_stream(int ordinal);
void destroy_stream(int ordinal, void* stream) noexcept;
void synchronize_stream(StreamView stream);
void copy(void* destination, const void* source, std::size_t size_bytes, StreamView stream);
void fill(void* destination, unsigned char value, std::size_t size_bytes, StreamView stream);

[[nodiscard]] void* create_event(int ordinal);
void destroy_event(int ordinal, void* event) noexcept;
void record_event(void* event, StreamView stream);
void synchronize_event(int ordinal, void* event);
[[nodiscard]] double elapsed_us(int ordinal, void* start, void* stop);

/// An executable graph of what `body` enqueues on `stream`, uploaded.
[[nodiscard]] void* record_graph(StreamView stream, const std::function<void()>& body);
void launch_graph(void* graph, StreamView stream);
void destroy_graph(int ordinal, void* graph) noexcept;

}  // namespace moelink::cuda
