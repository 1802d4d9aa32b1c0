#include "perf/collectives/nccl.hpp"

#if MOELINK_PERF_HAVE_NCCL

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>
#include <span>
#include <stdexcept>

namespace moelink::perf {
namespace {

/// Members are named after NCCL's functions, in snake case without the "nccl".
struct Library {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) recv = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  bool complete = true;

  /// Loaded once and never unloaded: it has threads. Incomplete if it is not there, or too old.
  static const Library& get() {
    static const Library library = open();
    return library;
  }

 private:
  template <class Function>
  static void resolve(void* handle, Function*& slot, const char* name, bool& complete) {
    slot = reinterpret_cast<Function*>(dlsym(handle, name));
    complete = complete && slot != nullptr;
  }

  static Library open() {
    Library nccl;
    void* handle = nullptr;
    for (const char* name :
         {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2"}) {
      handle = handle != nullptr ? handle : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    nccl.complete = handle != nullptr;
    if (handle == nullptr) return nccl;
    resolve(handle, nccl.get_version, "ncclGetVersion", nccl.complete);
    resolve(handle, nccl.get_unique_id, "ncclGetUniqueId", nccl.complete);
    resolve(handle, nccl.get_error_string, "ncclGetErrorString", nccl.complete);
    resolve(handle, nccl.comm_init_rank, "ncclCommInitRank", nccl.complete);
    resolve(handle, nccl.comm_destroy, "ncclCommDestroy", nccl.complete);
    resolve(handle, nccl.all_gather, "ncclAllGather", nccl.complete);
    resolve(handle, nccl.reduce_scatter, "ncclReduceScatter", nccl.complete);
    resolve(handle, nccl.send, "ncclSend", nccl.complete);
    resolve(handle, nccl.recv, "ncclRecv", nccl.complete);
    resolve(handle, nccl.group_start, "ncclGroupStart", nccl.complete);
    resolve(handle, nccl.group_end, "ncclGroupEnd", nccl.complete);
    return nccl;
  }
};

void require(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    throw std::runtime_error(fmt::format("{}: {}", what, Library::get().get_error_string(result)));
  }
}

ncclDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::bfloat16:
      return ncclBfloat16;
    case DataType::float16:
      return ncclFloat16;
    case DataType::float32:
      return ncclFloat32;
    case DataType::bytes:
      break;
  }
  return ncclInt8;
}

class NcclCollectives : public Collectives {
 public:
  NcclCollectives(const Communicator& communicator, StreamView stream) : nccl_(Library::get()), stream_(stream) {
    ncclUniqueId id{};
    if (communicator.rank() == 0) require(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    const auto all = communicator.all_gather(std::as_bytes(std::span(&id, 1)));
    std::memcpy(&id, all.front().data(), sizeof(id));
    size_ = communicator.size();
    if (cudaSetDevice(stream.device().ordinal()) != cudaSuccess) throw std::runtime_error("cudaSetDevice failed");
    require(nccl_.comm_init_rank(&comm_, size_, id, communicator.rank()), "ncclCommInitRank");
  }
  ~NcclCollectives() override { nccl_.comm_destroy(comm_); }
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  [[nodiscard]] std::string name() const override {
    int code = 0;
    require(nccl_.get_version(&code), "ncclGetVersion");
    return fmt::format("NCCL {}.{}.{}", code / 10000, code / 100 % 100, code % 100);
  }

  void all_gather(const void* mine, void* all, std::int64_t bytes) override {
    require(nccl_.all_gather(mine, all, static_cast<std::size_t>(bytes), ncclInt8, comm_, stream()), "ncclAllGather");
  }

  void reduce_scatter(const void* all, void* mine, std::int64_t count, DataType type) override {
    require(nccl_.reduce_scatter(all, mine, static_cast<std::size_t>(count), type_of(type), ncclSum, comm_, stream()),
            "ncclReduceScatter");
  }

  void all_to_all(const void* send, void* receive, std::int64_t bytes) override {
    const RankRows one_each{std::vector<std::int64_t>(static_cast<std::size_t>(size_), 1)};
    exchange(send, one_each, receive, one_each, bytes);
  }

  void exchange(const void* send, const RankRows& sent, void* receive, const RankRows& received,
                std::int64_t row_bytes) override {
    require(nccl_.group_start(), "ncclGroupStart");
    for (int rank = 0; rank < size_; ++rank) {
      const auto bytes_of = [&](const RankRows& rows) {
        return static_cast<std::size_t>(rows.counts[static_cast<std::size_t>(rank)] * row_bytes);
      };
      const auto* from = static_cast<const std::byte*>(send) + sent.first(rank) * row_bytes;
      auto* to = static_cast<std::byte*>(receive) + received.first(rank) * row_bytes;
      if (bytes_of(sent) != 0) require(nccl_.send(from, bytes_of(sent), ncclInt8, rank, comm_, stream()), "ncclSend");
      if (bytes_of(received) != 0) {
        require(nccl_.recv(to, bytes_of(received), ncclInt8, rank, comm_, stream()), "ncclRecv");
      }
    }
    require(nccl_.group_end(), "ncclGroupEnd");
  }

 private:
  [[nodiscard]] cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.cuda_handle()); }

  const Library& nccl_;
  StreamView stream_;
  int size_ = 0;
  ncclComm_t comm_ = nullptr;
};

/// Why this rank cannot have it.
std::string obstacle(const Communicator& communicator) {
  const auto& ranks = communicator.topology().ranks();
  const RankInfo& mine = communicator.topology().rank(communicator.rank());
  if (mine.device.is_host()) return "NCCL needs a GPU for each rank, and ranks are on the host";
  for (const RankInfo& other : ranks) {
    if (other.rank != mine.rank && other.node == mine.node && other.uuid == mine.uuid) {
      return fmt::format("NCCL needs a GPU for each rank, and ranks {} and {} share one", mine.rank, other.rank);
    }
  }
  if (!Library::get().complete) return "libnccl.so.2 is not installed, or the loader does not find it";
  return "";
}

}  // namespace

std::unique_ptr<Collectives> make_nccl_collectives(const Communicator& communicator, StreamView stream,
                                                   std::string& reason) {
  const std::string mine = obstacle(communicator);
  for (const auto& words : communicator.all_gather(std::as_bytes(std::span(mine)))) {
    if (reason.empty()) reason.assign(reinterpret_cast<const char*>(words.data()), words.size());
  }
  if (!reason.empty()) return nullptr;
  return std::make_unique<NcclCollectives>(communicator, stream);
}

}  // namespace moelink::perf

#else

namespace moelink::perf {

std::unique_ptr<Collectives> make_nccl_collectives(const Communicator&, StreamView, std::string& reason) {
  reason = "this build has no NCCL: its headers, or the CUDA toolkit, were not found";
  return nullptr;
}

}  // namespace moelink::perf

#endif
