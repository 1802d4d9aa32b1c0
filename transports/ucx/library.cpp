#include "transports/ucx/library.hpp"

#if MOELINK_HAVE_UCX

#include "base/shared_library.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

UcxLibrary open_library() {
  const SharedLibrary library("libucp.so.0");
  if (!library.is_loaded()) {
    throw Error(
        ErrorCode::unsupported,
        "libucp.so.0 is not installed, or the loader does not find it (LD_LIBRARY_PATH); puts over UCX need it: "
        "apt-get install libucx0");
  }
  const auto need = [&](auto*& slot, const char* name) { library.need(slot, name, "install UCX 1.12 or newer"); };
  UcxLibrary ucx;
  need(ucx.config_read, "ucp_config_read");
  need(ucx.config_modify, "ucp_config_modify");
  need(ucx.config_release, "ucp_config_release");
  need(ucx.init_version, "ucp_init_version");
  need(ucx.cleanup, "ucp_cleanup");
  need(ucx.worker_create, "ucp_worker_create");
  need(ucx.worker_destroy, "ucp_worker_destroy");
  need(ucx.worker_get_address, "ucp_worker_get_address");
  need(ucx.worker_release_address, "ucp_worker_release_address");
  need(ucx.worker_progress, "ucp_worker_progress");
  need(ucx.worker_set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  need(ucx.ep_create, "ucp_ep_create");
  need(ucx.ep_flush_nbx, "ucp_ep_flush_nbx");
  need(ucx.ep_close_nbx, "ucp_ep_close_nbx");
  need(ucx.am_send_nbx, "ucp_am_send_nbx");
  need(ucx.am_recv_data_nbx, "ucp_am_recv_data_nbx");
  need(ucx.request_check_status, "ucp_request_check_status");
  need(ucx.request_free, "ucp_request_free");
  need(ucx.get_version_string, "ucp_get_version_string");
  need(ucx.status_string, "ucs_status_string");
  return ucx;
}

}  // namespace

const UcxLibrary& UcxLibrary::get() {
  static const UcxLibrary library = open_library();
  return library;
}

}  // namespace moelink

#endif
