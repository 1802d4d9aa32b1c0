#include "all_reduce/nccl_library.hpp"

#if MOELINK_HAVE_NCCL

#include <array>
#include <string>

#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

NcclLibrary open_library() {
  // The loader's search path first, then where the toolkit's packages put it without telling the loader.
  const std::array<std::string, 3> files = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                            "/usr/local/cuda/lib/libnccl.so.2"};
  const SharedLibrary library(files);
  if (!library.is_loaded()) {
    throw Error(ErrorCode::unsupported,
                "libnccl.so.2 is not installed, or the loader does not find it (LD_LIBRARY_PATH); all-reduce between "
                "nodes needs NCCL");
  }
  const auto need = [&](auto*& slot, const char* name) { library.need(slot, name, "install NCCL 2.14 or newer"); };
  NcclLibrary nccl;
  need(nccl.get_version, "ncclGetVersion");
  need(nccl.get_unique_id, "ncclGetUniqueId");
  need(nccl.get_error_string, "ncclGetErrorString");
  need(nccl.comm_init_rank_config, "ncclCommInitRankConfig");
  need(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  need(nccl.comm_finalize, "ncclCommFinalize");
  need(nccl.comm_destroy, "ncclCommDestroy");
  need(nccl.comm_abort, "ncclCommAbort");
  need(nccl.all_reduce, "ncclAllReduce");
  return nccl;
}

}  // namespace

const NcclLibrary& NcclLibrary::get() {
  static const NcclLibrary library = open_library();
  return library;
}

std::string NcclLibrary::version() const {
  int code = 0;
  if (get_version(&code) != ncclSuccess) {
    return "of unknown version";
  }
  return text(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

}  // namespace moelink

#endif
