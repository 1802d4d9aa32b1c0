// Ranks from MPI communicators: the world, a part of it in another order, and one process alone; used after
// MPI_Finalize.
#include <cstdio>
#include <cstdlib>
#include <span>

#include "moelink/error.hpp"
#include "moelink/mpi.hpp"

namespace {

void expect(bool fact, const char* what) {
  if (!fact) {
    std::fprintf(stderr, "failed: %s\n", what);
    std::abort();
  }
}

void check_gather(const moelink::Communicator& comm) {
  const int mine = comm.rank() * 7;
  const auto all = comm.all_gather(std::as_bytes(std::span(&mine, 1)));
  expect(static_cast<int>(all.size()) == comm.size(), "a part for every rank");
  for (std::size_t r = 0; r < all.size(); ++r) {
    expect(all[r][0] == static_cast<std::byte>(r * 7), "parts are in rank order");
  }
}

void expect_refusal(MPI_Comm communicator, const char* what) {
  try {
    (void)moelink::from_mpi(communicator);
  } catch (const moelink::Error& error) {
    expect(error.code() == moelink::ErrorCode::invalid_argument, what);
    return;
  }
  expect(false, what);
}

}  // namespace

int main(int argc, char** argv) {
  expect_refusal(MPI_COMM_WORLD, "before MPI_Init");
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const moelink::CommunicatorOptions options{.device = moelink::Device::host(), .deadline = std::chrono::seconds(20)};
  expect_refusal(MPI_COMM_NULL, "no communicator");

  const auto world = moelink::from_mpi(MPI_COMM_WORLD, options);
  MPI_Comm reversed_half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &reversed_half);
  const auto half = moelink::from_mpi(reversed_half, options);
  const auto alone = moelink::from_mpi(MPI_COMM_SELF, options);
  MPI_Comm_free(&reversed_half);
  MPI_Finalize();

  expect(world.rank() == rank && world.size() == size, "rank and size are MPI's");
  expect(half.rank() == (size - 1 - rank) / 2, "rank in the reversed half");
  expect(alone.size() == 1, "MPI_COMM_SELF is a group of one");
  for (int i = 0; i < 10; ++i) {
    check_gather(world);
    check_gather(half);
    check_gather(alone);
  }
  expect_refusal(MPI_COMM_WORLD, "after MPI_Finalize");
  return 0;
}
