#include "perf/collectives/mpi.hpp"

#if MOELINK_PERF_HAVE_MPI

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <system_error>

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

/// The value of one of the library's settings, "" if it has no such setting or no value. MPI has started.
std::string setting(const char* name) {
  int index = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int length = 0;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return "";
  require(MPI_T_cvar_handle_alloc(index, nullptr, &handle, &length), "MPI_T_cvar_handle_alloc");
  std::string value(static_cast<std::size_t>(length), '\0');
  require(MPI_T_cvar_read(handle, value.data()), "MPI_T_cvar_read");
  MPI_T_cvar_handle_free(&handle);
  return value.c_str();  // up to the zero
}

/// Before MPI starts, from the thread that starts it, and before puts ask UCX for anything.
void set_unless_set(const char* name, const char* value) { setenv(name, value, 0); }  // NOLINT(concurrency-mt-unsafe)

/// Open MPI, left alone, keeps UCX for hardware that it knows; "any" takes what UCX_TLS allows. Puts need transports
/// that say when a peer has gone, which shared memory does not: without RDMA that leaves tcp, and MPI is to use no
/// other.
void force_ucx() {
  std::error_code ignored;
  const std::filesystem::path rdma = "/sys/class/infiniband";
  if (!std::filesystem::exists(rdma, ignored) || std::filesystem::is_empty(rdma, ignored)) {
    set_unless_set("UCX_TLS", "tcp,self");
  }
  set_unless_set("OMPI_MCA_pml", "ucx");
  set_unless_set("OMPI_MCA_opal_common_ucx_tls", "any");
  set_unless_set("OMPI_MCA_opal_common_ucx_devices", "any");
}

/// MPI is started once in a process, and ends with it.
class Library {
 public:
  static const Library& start(const std::string& transport) {
    static const Library library(transport);
    return library;
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// "Open MPI v4.1.4, pml ucx, UCX_TLS=tcp,self": what it was told to use, and so uses, for it does not start without.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }

 private:
  explicit Library(const std::string& transport) {
    if (transport == "ucx") force_ucx();
    int provided = 0;
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    describe();
  }
  ~Library() { MPI_Finalize(); }

  void describe() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    require(MPI_Get_library_version(version.data(), &length), "MPI_Get_library_version");
    description_ = version.data();
    description_.resize(std::min(description_.find_first_of(",\n"), description_.size()));
    int provided = 0;
    require(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided), "MPI_T_init_thread");
    const std::string pml = setting("pml");
    const std::string btl = setting("btl");
    MPI_T_finalize();
    description_ += pml.empty() ? ", transport of its own choice" : ", pml " + pml;
    if (pml == "ucx") {
      const char* const transports = std::getenv("UCX_TLS");
      description_ += std::string(", UCX_TLS=") + (transports != nullptr ? transports : "all");
    } else if (!btl.empty()) {
      description_ += ", btl " + btl;
    }
  }

  std::string description_;
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
  MpiCollectives(const Library& library, StreamView stream) : library_(library), stream_(stream) {}

  [[nodiscard]] std::string name() const override { return library_.description(); }

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

  void all_to_all(const void* send, void* receive, std::int64_t bytes) override {
    stream_.synchronize();
    const int count = count_of(bytes, "MPI_Alltoall");
    require(MPI_Alltoall(send, count, MPI_BYTE, receive, count, MPI_BYTE, MPI_COMM_WORLD), "MPI_Alltoall");
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
  const Library& library_;
  StreamView stream_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(const std::string& transport, const Communicator& communicator,
                                                  StreamView stream, std::string& reason) {
  for (int rank = 1; rank < communicator.size(); ++rank) {
    if (communicator.topology().same_process(rank - 1, rank)) {
      reason = "MPI's ranks are processes; start them with mpirun, without --ranks";
      return nullptr;
    }
  }
  const Library& library = Library::start(transport);
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
  return std::make_unique<MpiCollectives>(library, stream);
}

}  // namespace moelink::perf

#else

namespace moelink::perf {

std::unique_ptr<Collectives> make_mpi_collectives(const std::string&, const Communicator&, StreamView,
                                                  std::string& reason) {
  reason = "this build has no MPI (apt-get install libopenmpi-dev)";
  return nullptr;
}

}  // namespace moelink::perf

#endif
