// What the grid barrier costs, beside cooperative groups' grid.sync() and a launch. Built by nvcc:
//
//   ninja barrier_perf && bin/barrier_perf
//
// A barrier's time is the slope between launches with few and many barriers in a row, so that the launch cancels out;
// "one in a launch" is what a kernel with a single barrier takes longer than an empty one, both replayed in graphs.
// Each is the median of kSamples. Before that, a launch checks that no block gets through early. Exit code 1: one did.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "moelink/device/exec/device_exec.cuh"
#include "moelink/device/sync/grid_barrier.cuh"

namespace {

constexpr int kFewBarriers = 100;
constexpr int kManyBarriers = 1100;
constexpr int kSamples = 21;
constexpr int kReplaysPerGraph = 100;

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::exit(2);
  }
}
#define BARRIER_PERF_CHECK(call) check(call, #call)

__global__ void empty_kernel(moelink::GridBarrierWord*, int) {}

__global__ void moelink_kernel(moelink::GridBarrierWord* word, int barriers) {
  for (int i = 0; i < barriers; ++i) {
    if (!moelink::grid_barrier(moelink::DeviceExec{}, word, moelink::FaultContext{})) {
      return;
    }
  }
}

__global__ void cooperative_groups_kernel(moelink::GridBarrierWord*, int barriers) {
  for (int i = 0; i < barriers; ++i) {
    cooperative_groups::this_grid().sync();
  }
}

__global__ void checking_kernel(moelink::GridBarrierWord* word, unsigned* values, unsigned* wrong, int rounds) {
  const moelink::DeviceExec ex;
  for (int round = 1; round <= rounds; ++round) {
    if (ex.thread() == 0) {
      values[ex.block()] = round;
    }
    moelink::grid_barrier(ex, word, moelink::FaultContext{});
    for (int i = ex.thread(); i < ex.num_blocks(); i += ex.num_threads()) {
      if (values[i] != round) {
        atomicAdd(wrong, 1);
      }
    }
    moelink::grid_barrier(ex, word, moelink::FaultContext{});
  }
}

using Kernel = void (*)(moelink::GridBarrierWord*, int);

class Bench {
 public:
  Bench() {
    BARRIER_PERF_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    BARRIER_PERF_CHECK(cudaEventCreate(&start_));
    BARRIER_PERF_CHECK(cudaEventCreate(&stop_));
    BARRIER_PERF_CHECK(cudaMalloc(&word_, 128));
    BARRIER_PERF_CHECK(cudaMemset(word_, 0, 128));
  }

  /// Microseconds of one barrier among many.
  double us_of_barrier(Kernel kernel, int blocks, int threads) {
    const double few = median([&] { return us_of([&] { launch(kernel, blocks, threads, kFewBarriers); }); });
    const double many = median([&] { return us_of([&] { launch(kernel, blocks, threads, kManyBarriers); }); });
    return (many - few) / (kManyBarriers - kFewBarriers);
  }

  /// Microseconds per launch with one barrier, replayed in a graph of kReplaysPerGraph.
  double us_of_launch(Kernel kernel, int blocks, int threads) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    BARRIER_PERF_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < kReplaysPerGraph; ++i) {
      launch(kernel, blocks, threads, 1);
    }
    BARRIER_PERF_CHECK(cudaStreamEndCapture(stream_, &graph));
    BARRIER_PERF_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    const double us = median([&] { return us_of([&] { BARRIER_PERF_CHECK(cudaGraphLaunch(executable, stream_)); }); });
    BARRIER_PERF_CHECK(cudaGraphExecDestroy(executable));
    BARRIER_PERF_CHECK(cudaGraphDestroy(graph));
    return us / kReplaysPerGraph;
  }

  unsigned wrong_values(int blocks, int threads) {
    unsigned* memory = nullptr;
    BARRIER_PERF_CHECK(cudaMalloc(&memory, (blocks + 1) * sizeof(unsigned)));
    BARRIER_PERF_CHECK(cudaMemset(memory, 0, (blocks + 1) * sizeof(unsigned)));
    unsigned* values = memory + 1;
    int rounds = 500;
    void* parameters[] = {&word_, &values, &memory, &rounds};
    BARRIER_PERF_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(&checking_kernel), dim3(blocks),
                                                   dim3(threads), parameters, 0, stream_));
    BARRIER_PERF_CHECK(cudaStreamSynchronize(stream_));
    unsigned wrong = 0;
    BARRIER_PERF_CHECK(cudaMemcpy(&wrong, memory, sizeof(wrong), cudaMemcpyDeviceToHost));
    BARRIER_PERF_CHECK(cudaFree(memory));
    return wrong;
  }

 private:
  void launch(Kernel kernel, int blocks, int threads, int barriers) {
    void* parameters[] = {&word_, &barriers};
    BARRIER_PERF_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(kernel), dim3(blocks), dim3(threads),
                                                   parameters, 0, stream_));
  }

  template <class Work>
  double us_of(Work&& work) {
    BARRIER_PERF_CHECK(cudaEventRecord(start_, stream_));
    work();
    BARRIER_PERF_CHECK(cudaEventRecord(stop_, stream_));
    BARRIER_PERF_CHECK(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    BARRIER_PERF_CHECK(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return 1000.0 * milliseconds;
  }

  template <class Sample>
  double median(Sample&& sample) {
    sample();  // warm
    std::vector<double> samples(kSamples);
    std::generate(samples.begin(), samples.end(), sample);
    std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
    return samples[kSamples / 2];
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  moelink::GridBarrierWord* word_ = nullptr;
};

}  // namespace

int main() {
  cudaDeviceProp device{};
  BARRIER_PERF_CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, %d SMs. Microseconds.\n\n", device.name, device.multiProcessorCount);
  std::printf(
      "| blocks x threads | moelink | cooperative groups | one in a launch: moelink | cooperative groups | empty "
      "launch "
      "| #wrong |\n| --- | --- | --- | --- | --- | --- | --- |\n");
  Bench bench;
  unsigned all_wrong = 0;
  for (const int threads : {128, 1024}) {
    for (const int blocks : {2, 16, 32, 64, 96, device.multiProcessorCount}) {
      const unsigned wrong = bench.wrong_values(blocks, threads);
      all_wrong += wrong;
      const double empty = bench.us_of_launch(empty_kernel, blocks, threads);
      std::printf("| %d x %d | %.3f | %.3f | %.3f | %.3f | %.3f | %u |\n", blocks, threads,
                  bench.us_of_barrier(moelink_kernel, blocks, threads),
                  bench.us_of_barrier(cooperative_groups_kernel, blocks, threads),
                  bench.us_of_launch(moelink_kernel, blocks, threads) - empty,
                  bench.us_of_launch(cooperative_groups_kernel, blocks, threads) - empty, empty, wrong);
    }
  }
  return all_wrong == 0 ? 0 : 1;
}
