// libibverbs as a table of function pointers, found at run time, so that binaries start without it and tests bring a NIC
// of their own (tests/soft_nic).
#pragma once

#if MOELINK_HAVE_VERBS

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace moelink {

/// Members are named after the functions, without "ibv_". What libibverbs has inline (poll, post) goes through the
/// context's own table, as there.
struct VerbsLibrary {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* out) = nullptr;
  int (*query_port_raw)(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) = nullptr;
  int (*query_gid_ex)(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out,
                      std::uint32_t flags, std::size_t entry_bytes) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access) = nullptr;
  /// Newer than the others, and null in older libraries: for relaxed ordering, and for GPU memory.
  ibv_mr* (*reg_mr_iova2)(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                          unsigned int access) = nullptr;
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova, int fd,
                           int access) = nullptr;
  int (*dereg_mr)(ibv_mr* mr) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int vector) = nullptr;
  int (*destroy_cq)(ibv_cq* cq) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes) = nullptr;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*destroy_qp)(ibv_qp* qp) = nullptr;
  int (*get_async_event)(ibv_context* context, ibv_async_event* event) = nullptr;
  void (*ack_async_event)(ibv_async_event* event) = nullptr;
  const char* (*wc_status_str)(ibv_wc_status status) = nullptr;
  const char* (*event_type_str)(ibv_event_type type) = nullptr;

  /// The library at `path`; empty: this machine's libibverbs.so.1. Loaded once and never unloaded: providers start
  /// threads. Throws ErrorCode::unsupported.
  [[nodiscard]] static const VerbsLibrary& get(const std::string& path);

  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr& out) const {
    out = {};  // the exported function fills a shorter struct, whose rest must read as zero
    return query_port_raw(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out));
  }
};

}  // namespace moelink

#endif
