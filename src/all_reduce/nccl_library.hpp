// NCCL as a table of function pointers, found at run time, so that binaries start without it and tests put their own
// functions in.
#pragma once

#if MOELINK_HAVE_NCCL

#include <nccl.h>

#include <string>

namespace moelink {

/// Members are named after NCCL's functions, in snake case without the "nccl".
struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclCommFinalize) comm_finalize = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;

  /// This machine's libnccl.so.2, loaded once and never unloaded (it has threads). Throws ErrorCode::unsupported.
  [[nodiscard]] static const NcclLibrary& get();

  /// "2.28.9".
  [[nodiscard]] std::string version() const;
};

}  // namespace moelink

#endif
