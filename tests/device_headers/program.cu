// A user's program for nvcc: moelink's device headers in a kernel of one's own. Exit code 0: right, 1: wrong, 77: no
// device.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "moelink/device/exec/device_exec.cuh"
#include "two_phase_sum.cuh"

__global__ void sum_kernel(TwoPhaseSum args) { two_phase_sum(moelink::DeviceExec{}, args); }

template <class T>
T* device_zeros(std::size_t count) {
  T* memory = nullptr;
  if (cudaMalloc(&memory, count * sizeof(T)) != cudaSuccess ||
      cudaMemset(memory, 0, count * sizeof(T)) != cudaSuccess) {
    std::fprintf(stderr, "no device memory\n");
    std::exit(1);
  }
  return memory;
}

int main() {
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  constexpr int kBlocks = 32;
  std::vector<moelink::u32> input(100000);
  moelink::u64 expected = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<moelink::u32>(i * 2654435761u % 1000);
    expected += input[i];
  }
  auto* device_input = device_zeros<moelink::u32>(input.size());
  cudaMemcpy(device_input, input.data(), input.size() * sizeof(moelink::u32), cudaMemcpyHostToDevice);
  TwoPhaseSum args{device_input, static_cast<int>(input.size()), device_zeros<moelink::u64>(1),
                   device_zeros<moelink::u64>(kBlocks), device_zeros<moelink::GridBarrierWord>(1)};
  for (int launch = 0; launch < 100; ++launch) {
    // Cooperative: the driver refuses a grid that is not resident, instead of letting the barrier run into its
    // deadline.
    void* parameters[] = {&args};
    cudaLaunchCooperativeKernel(reinterpret_cast<void*>(&sum_kernel), dim3(kBlocks), dim3(256), parameters, 0, nullptr);
    std::vector<moelink::u64> totals(kBlocks);
    cudaMemcpy(totals.data(), args.totals, kBlocks * sizeof(moelink::u64), cudaMemcpyDeviceToHost);
    for (const moelink::u64 total : totals) {
      if (total != expected) {
        std::fprintf(stderr, "launch %d: %lu instead of %lu (%s)\n", launch, total, expected,
                     cudaGetErrorString(cudaGetLastError()));
        return 1;
      }
    }
  }
  std::printf("100 launches of %d blocks: right\n", kBlocks);
  return 0;
}
