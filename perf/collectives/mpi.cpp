#include "perf/collectives/mpi.hpp"

#if MOELINK_PERF_HAVE_MPI

#include <fmt/format.h>
#include <mpi.h>

#include <limits>
#include <stdexcept>

namespace moelink::perf {
namespace {

void require(int result, const char* what) {
  if (result != MPI_SUCCESS) throw std::runtime_error(fmt::format("{} failed with {}", what, result));
}

int count_of(std::int64_t count, const char* what) {
  if (count > std::numeric_limits<int>::max()) {
    throw std::runtime_error(fmt::format("{}: {} elements are more than MPI counts; use fewer tokens", what, count));
  }
  return static_cast<int>(count);
}

/// MPI is started once in a process, and ends with it.
class Library {
 public:
  static const Library& start() {
    static const Library library;
    return library;
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  Library() {
    int provided = 0;
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~Library() { MPI_Finalize(); }
};

/// A row as one element, so that counts stay small.
class RowType {
 public:
  explicit RowType(std::int64_t bytes) {
    require(MPI_Type_contiguous(count_of(bytes, "row"), MPI_BYTE, &type_), "MPI_Type_contiguous");
    require(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~RowType() { MPI_Type_free(&type_); }
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;

  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Counts and displacements as MPI takes them.
struct Vector {
  explicit Vector(const RankRows& rows) {
    for (std::size_t rank = 0; rank < rows.counts.size(); ++rank) {
      counts.push_back(count_of(rows.counts[rank], "MPI_Alltoallv"));
      firsts.push_back(count_of(rows.first(static_cast<int>(rank)), "MPI_Alltoallv"));
    }
  }
  std::vector<int> counts;
  std::vector<int> firsts;
};

class MpiCollectives : public Collectives {
 public:
  explicit MpiCollectives(StreamView stream) : stream_(stream) {}

  [[nodiscard]] std::string name() const override { return "MPI"; }

  void all_gather(const void* mine, void* all, std::int64_t bytes) override {
    stream_.synchronize();
    const int count = count_of(bytes, "MPI_Allgather");
    require(MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD), "MPI_Allgather");
  }

  void reduce_scatter(const void* all, void* mine, std::int64_t count, DataType type) override {
    if (type != DataType::float32) throw std::logic_error("MPI knows no 16-bit floats");
    stream_.synchronize();
    require(MPI_Reduce_scatter_block(all, mine, count_of(count, "MPI_Reduce_scatter_block"), MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_WORLD),
            "MPI_Reduce_scatter_block");
  }

  void exchange(const void* send, const RankRows& sent, void* receive, const RankRows& received,
                std::int64_t row_bytes) override {
    stream_.synchronize();
    const RowType row(row_bytes);
    const Vector out(sent);
    const Vector in(received);
    require(MPI_Alltoallv(send, out.counts.data(), out.firsts.data(), row.type(), receive, in.counts.data(),
                          in.firsts.data(), row.type(), MPI_COMM_WORLD),
            "MPI_Alltoallv");
  }

 private:
  StreamView stream_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(const Communicator& communicator, StreamView stream,
                                                  std::string& reason) {
  for (int rank = 1; rank < communicator.size(); ++rank) {
    if (communicator.topology().same_process(rank - 1, rank)) {
      reason = "MPI's ranks are processes; start them with mpirun, without --ranks";
      return nullptr;
    }
  }
  Library::start();
  int rank = 0;
  int size = 0;
  require(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  require(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (size != communicator.size()) {
    reason = fmt::format("MPI sees {} rank(s) where there are {}; start them with mpirun", size, communicator.size());
    return nullptr;
  }
  if (rank != communicator.rank()) {
    throw std::runtime_error(fmt::format("rank {} is rank {} of MPI", communicator.rank(), rank));
  }
  return std::make_unique<MpiCollectives>(stream);
}

}  // namespace moelink::perf

#else

namespace moelink::perf {

std::unique_ptr<Collectives> make_mpi_collectives(const Communicator&, StreamView, std::string& reason) {
  reason = "this build has no MPI (apt-get install libopenmpi-dev)";
  return nullptr;
}

}  // namespace moelink::perf

#endif
