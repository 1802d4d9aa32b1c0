// Collectives after MPI_Finalize: MPI starts the ranks, and nothing after that may call it.
#include <mpi.h>

#include <cstdio>

#include "all_reduce/sum_check.hpp"
#include "moelink/mpi.hpp"

int main(int argc, char** argv) {
  using namespace moelink;
  MPI_Init(&argc, &argv);
  const auto communicator = from_mpi(MPI_COMM_WORLD, {.device = Device::host(), .deadline = std::chrono::seconds(20)});
  AllReduce before(communicator, {.type = DataType::float32, .max_elements = 300'000});
  MPI_Finalize();

  AllReduce after(communicator, {.type = DataType::float32, .max_elements = 300'000});
  const Stream stream(Device::host(), {.num_threads = 1});
  moelink::testing::SumCheck check(300'000);
  std::int64_t wrong = 0;
  for (int call = 0; call < 40; ++call) {
    const std::int64_t sizes[] = {1, 1000, 50'000, 300'000};
    AllReduce& all_reduce = call % 8 < 4 ? before : after;
    all_reduce(check.prepare(communicator, call, sizes[call % 4]), stream);
    stream.synchronize();
    all_reduce.check();
    wrong += check.count_wrong(communicator.size(), sizes[call % 4]);
  }
  communicator.barrier();
  std::printf("rank %d of %d: %lld wrong\n", communicator.rank(), communicator.size(), static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
