#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "perf/ceiling/row_kernels.hpp"

namespace moelink::perf {
namespace {

void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

/// A block takes one part (blockDim.x vectors) of one token after the other.
template <class Move>
__device__ void for_vectors(const RowTraffic& traffic, Move&& move) {
  const std::int64_t vectors = traffic.row_bytes / 16;
  const std::int64_t parts = (vectors + blockDim.x - 1) / blockDim.x;
  for (std::int64_t item = blockIdx.x; item < traffic.num_tokens * parts; item += gridDim.x) {
    const std::int64_t token = item / parts;
    const std::int64_t vector = item % parts * blockDim.x + threadIdx.x;
    if (vector < vectors) move(token, vector, vectors);
  }
}

__global__ void expand(RowTraffic traffic) {
  const uint4* tokens = static_cast<const uint4*>(traffic.token_rows);
  uint4* rows = static_cast<uint4*>(traffic.expert_rows);
  for_vectors(traffic, [&](std::int64_t token, std::int64_t vector, std::int64_t vectors) {
    const uint4 value = tokens[token * vectors + vector];
#pragma unroll 8
    for (int k = 0; k < traffic.top_k; ++k) {
      const std::int64_t row = traffic.row_of_entry[token * traffic.top_k + k];
      if (row >= 0) rows[row * vectors + vector] = value;
    }
  });
}

__global__ void gather(RowTraffic traffic) {
  const uint4* rows = static_cast<const uint4*>(traffic.expert_rows);
  uint4* tokens = static_cast<uint4*>(traffic.token_rows);
  for_vectors(traffic, [&](std::int64_t token, std::int64_t vector, std::int64_t vectors) {
    uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 8
    for (int k = 0; k < traffic.top_k; ++k) {
      const std::int64_t row = traffic.row_of_entry[token * traffic.top_k + k];
      if (row < 0) continue;
      const uint4 value = rows[row * vectors + vector];
      sum = make_uint4(sum.x ^ value.x, sum.y ^ value.y, sum.z ^ value.z, sum.w ^ value.w);
    }
    tokens[token * vectors + vector] = sum;
  });
}

int blocks_for(const RowTraffic& traffic, RowGrid grid) {
  const std::int64_t parts = (traffic.row_bytes / 16 + grid.threads - 1) / grid.threads;
  const std::int64_t most = grid.max_blocks != 0 ? grid.max_blocks : std::int64_t{1} << 30;
  return static_cast<int>(std::clamp<std::int64_t>(traffic.num_tokens * parts, 1, most));
}

}  // namespace

void launch_expand(const RowTraffic& traffic, RowGrid grid, void* cuda_stream) {
  expand<<<blocks_for(traffic, grid), grid.threads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(traffic);
  require(cudaGetLastError(), "the expand kernel could not be launched");
}

void launch_gather(const RowTraffic& traffic, RowGrid grid, void* cuda_stream) {
  gather<<<blocks_for(traffic, grid), grid.threads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(traffic);
  require(cudaGetLastError(), "the gather kernel could not be launched");
}

int prepare_row_kernels(int cuda_ordinal) {
  int count = 0;
  cudaFuncAttributes attributes{};
  require(cudaSetDevice(cuda_ordinal), "cudaSetDevice");
  require(cudaFuncGetAttributes(&attributes, expand), "loading the expand kernel");
  require(cudaFuncGetAttributes(&attributes, gather), "loading the gather kernel");
  require(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, cuda_ordinal), "cudaDeviceGetAttribute");
  return count;
}

std::int64_t free_memory_bytes(int cuda_ordinal) {
  std::size_t free = 0;
  std::size_t total = 0;
  require(cudaSetDevice(cuda_ordinal), "cudaSetDevice");
  require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

bool enable_peer(int from_ordinal, int to_ordinal) {
  int possible = 0;
  require(cudaDeviceCanAccessPeer(&possible, from_ordinal, to_ordinal), "cudaDeviceCanAccessPeer");
  if (possible == 0) return false;
  require(cudaSetDevice(from_ordinal), "cudaSetDevice");
  const cudaError_t result = cudaDeviceEnablePeerAccess(to_ordinal, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();  // not an error here; the next launch must not report it
    return true;
  }
  require(result, "cudaDeviceEnablePeerAccess");
  return true;
}

}  // namespace moelink::perf
