#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "moelink/error.hpp"
#include "moelink/mpi.hpp"

namespace moelink {
namespace {

using Clock = std::chrono::steady_clock;

void check_mpi(int result, const std::string& call) {
  if (result == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(result, words.data(), &length);
  throw Error(ErrorCode::system, call + " failed: " + words.data());
}

struct Buffers {
  std::vector<std::byte> mine;
  std::vector<std::byte> all;
};

/// MPI_Iallgather and MPI_Test instead of MPI_Allgather: a rank that never comes is an error, not a hang.
void all_gather(MPI_Comm communicator, Clock::time_point until, std::span<const std::byte> mine,
                std::span<std::byte> all) {
  auto buffers = std::make_unique<Buffers>();
  buffers->mine.assign(mine.begin(), mine.end());
  buffers->all.resize(all.size());
  const int count = static_cast<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(buffers->mine.data(), count, MPI_BYTE, buffers->all.data(), count, MPI_BYTE, communicator,
                           &request),
            "MPI_Iallgather");
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0 && Clock::now() >= until) {
      (void)buffers.release();  // MPI may still write there, for as long as the process lives
      throw Error(ErrorCode::timeout,
                  "from_mpi(): the all-gather over the MPI communicator did not complete within the deadline; every "
                  "rank of it must call from_mpi()");
    }
    if (done == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  std::ranges::copy(buffers->all, all.begin());
}

void check_usable(MPI_Comm communicator) {
  int initialized = 0;
  int finalized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
  if (initialized == 0 || finalized != 0) {
    throw Error(ErrorCode::invalid_argument, finalized != 0 ? "from_mpi() was called after MPI_Finalize()"
                                                            : "from_mpi() was called before MPI_Init()");
  }
  if (communicator == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument, "from_mpi() was given MPI_COMM_NULL; pass a communicator of this rank");
  }
  int inter = 0;
  check_mpi(MPI_Comm_test_inter(communicator, &inter), "MPI_Comm_test_inter");
  if (inter != 0) {
    throw Error(ErrorCode::invalid_argument, "from_mpi() was given an intercommunicator; pass an intracommunicator");
  }
}

}  // namespace

Communicator from_mpi(MPI_Comm communicator, const CommunicatorOptions& options) {
  check_usable(communicator);
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  const auto until = Clock::now() + Communicator::deadline_of(options);
  return Communicator(
      rank, size,
      [&](std::span<const std::byte> mine, std::span<std::byte> all) { all_gather(communicator, until, mine, all); },
      options);
}

}  // namespace moelink
