#include "transports/verbs/library.hpp"

#if MOELINK_HAVE_VERBS

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

VerbsLibrary open_library(const std::string& path) {
  const SharedLibrary library(path);
  if (!library.is_loaded()) {
    const char* reason = dlerror();
    throw Error(ErrorCode::unsupported,
                text(path, " cannot be loaded (", reason != nullptr ? reason : "no reason given",
                     "); RDMA between nodes needs libibverbs: install rdma-core, or correct MOELINK_VERBS"));
  }
  const auto need = [&](auto*& slot, const char* name) { library.need(slot, name, "install rdma-core 32 or newer"); };
  VerbsLibrary verbs;
  need(verbs.get_device_list, "ibv_get_device_list");
  need(verbs.free_device_list, "ibv_free_device_list");
  need(verbs.get_device_name, "ibv_get_device_name");
  need(verbs.open_device, "ibv_open_device");
  need(verbs.close_device, "ibv_close_device");
  need(verbs.query_device, "ibv_query_device");
  need(verbs.query_port_raw, "ibv_query_port");
  need(verbs.query_gid_ex, "_ibv_query_gid_ex");
  need(verbs.alloc_pd, "ibv_alloc_pd");
  need(verbs.dealloc_pd, "ibv_dealloc_pd");
  need(verbs.reg_mr, "ibv_reg_mr");
  need(verbs.dereg_mr, "ibv_dereg_mr");
  need(verbs.create_cq, "ibv_create_cq");
  need(verbs.destroy_cq, "ibv_destroy_cq");
  need(verbs.create_qp, "ibv_create_qp");
  need(verbs.modify_qp, "ibv_modify_qp");
  need(verbs.destroy_qp, "ibv_destroy_qp");
  need(verbs.get_async_event, "ibv_get_async_event");
  need(verbs.ack_async_event, "ibv_ack_async_event");
  need(verbs.wc_status_str, "ibv_wc_status_str");
  need(verbs.event_type_str, "ibv_event_type_str");
  (void)library.find(verbs.reg_mr_iova2, "ibv_reg_mr_iova2");
  (void)library.find(verbs.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  return verbs;
}

}  // namespace

const VerbsLibrary& VerbsLibrary::get(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, VerbsLibrary> libraries;
  const std::string name = path.empty() ? "libibverbs.so.1" : path;
  const std::scoped_lock lock(mutex);
  const auto found = libraries.find(name);
  return found != libraries.end() ? found->second : libraries.emplace(name, open_library(name)).first->second;
}

}  // namespace moelink

#endif
