#include "transports/ucx/library.hpp"

#if MOELINK_HAVE_UCX

#include <dlfcn.h>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

template <class Function>
void resolve(void* library, Function*& slot, const char* name) {
  slot = reinterpret_cast<Function*>(dlsym(library, name));
  if (slot == nullptr) {
    throw Error(ErrorCode::unsupported, text("libucp.so.0 lacks ", name, "; install UCX 1.12 or newer"));
  }
}

UcxLibrary open_library() {
  void* library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(
        ErrorCode::unsupported,
        "libucp.so.0 is not installed, or the loader does not find it (LD_LIBRARY_PATH); puts over UCX need it: "
        "apt-get install libucx0");
  }
  UcxLibrary ucx;
  resolve(library, ucx.config_read, "ucp_config_read");
  resolve(library, ucx.config_release, "ucp_config_release");
  resolve(library, ucx.init_version, "ucp_init_version");
  resolve(library, ucx.cleanup, "ucp_cleanup");
  resolve(library, ucx.worker_create, "ucp_worker_create");
  resolve(library, ucx.worker_destroy, "ucp_worker_destroy");
  resolve(library, ucx.worker_get_address, "ucp_worker_get_address");
  resolve(library, ucx.worker_release_address, "ucp_worker_release_address");
  resolve(library, ucx.worker_progress, "ucp_worker_progress");
  resolve(library, ucx.worker_set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  resolve(library, ucx.ep_create, "ucp_ep_create");
  resolve(library, ucx.ep_flush_nbx, "ucp_ep_flush_nbx");
  resolve(library, ucx.ep_close_nbx, "ucp_ep_close_nbx");
  resolve(library, ucx.am_send_nbx, "ucp_am_send_nbx");
  resolve(library, ucx.am_recv_data_nbx, "ucp_am_recv_data_nbx");
  resolve(library, ucx.request_check_status, "ucp_request_check_status");
  resolve(library, ucx.request_free, "ucp_request_free");
  resolve(library, ucx.get_version_string, "ucp_get_version_string");
  resolve(library, ucx.status_string, "ucs_status_string");
  return ucx;
}

}  // namespace

const UcxLibrary& UcxLibrary::get() {
  static const UcxLibrary library = open_library();
  return library;
}

}  // namespace moelink

#endif
