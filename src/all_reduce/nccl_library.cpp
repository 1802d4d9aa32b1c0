#include "all_reduce/nccl_library.hpp"

#if MOELINK_HAVE_NCCL

#include <dlfcn.h>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

template <class Function>
void resolve(void* library, Function*& slot, const char* name) {
  slot = reinterpret_cast<Function*>(dlsym(library, name));
  if (slot == nullptr) {
    throw Error(ErrorCode::unsupported, text("libnccl.so.2 lacks ", name, "; install NCCL 2.14 or newer"));
  }
}

NcclLibrary open_library() {
  // The loader's search path first, then where the toolkit's packages put it without telling the loader.
  void* library = nullptr;
  for (const char* name : {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2"}) {
    library = library != nullptr ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    throw Error(ErrorCode::unsupported,
                "libnccl.so.2 is not installed, or the loader does not find it (LD_LIBRARY_PATH); all-reduce between "
                "nodes needs NCCL");
  }
  NcclLibrary nccl;
  resolve(library, nccl.get_version, "ncclGetVersion");
  resolve(library, nccl.get_unique_id, "ncclGetUniqueId");
  resolve(library, nccl.get_error_string, "ncclGetErrorString");
  resolve(library, nccl.comm_init_rank_config, "ncclCommInitRankConfig");
  resolve(library, nccl.comm_get_async_error, "ncclCommGetAsyncError");
  resolve(library, nccl.comm_finalize, "ncclCommFinalize");
  resolve(library, nccl.comm_destroy, "ncclCommDestroy");
  resolve(library, nccl.comm_abort, "ncclCommAbort");
  resolve(library, nccl.all_reduce, "ncclAllReduce");
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
