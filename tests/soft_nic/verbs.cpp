// The functions of libibverbs that the verbs transport calls, as a shared library of the same shape: what MOELINK_VERBS
// names. Between threads and between processes of one machine. tests/soft_nic/mischief.hpp lists what it can do.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "soft_nic/fabric.hpp"

#undef ibv_query_port
#undef ibv_reg_mr

#define SOFT_NIC_EXPORT __attribute__((visibility("default")))

namespace {

using namespace moelink::soft_nic;  // NOLINT(google-build-using-namespace): this file is the namespace's front door

thread_local std::string words_of_thread;  // NOLINT: per thread, so that one rank of many can misbehave
thread_local bool thread_has_words = false;

Mischief current_mischief() {
  const char* words = std::getenv("MOELINK_SOFT_NIC");
  return Mischief::parse(thread_has_words ? words_of_thread : words != nullptr ? words : "");
}

constexpr int kGids = 4;  // of an Ethernet port: v1 and v2, link-local and IPv4

void gid_of(std::uint32_t nic, bool is_ipv4, std::uint8_t (&raw)[16]) {
  std::memset(raw, 0, sizeof(raw));
  if (is_ipv4) {
    raw[10] = raw[11] = 0xff;
    raw[12] = 10;
  } else {
    raw[0] = 0xfe;
    raw[1] = 0x80;
  }
  raw[14] = static_cast<std::uint8_t>(nic >> 8);
  raw[15] = static_cast<std::uint8_t>(nic);
}

int poll_cq(ibv_cq* handle, int most, ibv_wc* out) {
  const std::scoped_lock lock(Fabric::instance().mutex);
  Queue& queue = queue_of(handle);
  int count = 0;
  for (; count < most && !queue.entries.empty(); ++count) {
    out[count] = queue.entries.front();
    queue.entries.pop_front();
    const auto pair = Fabric::instance().pairs.find(out[count].qp_num);
    if (pair == Fabric::instance().pairs.end()) continue;
    const bool is_receive = (out[count].opcode & IBV_WC_RECV) != 0;
    if (out[count].status == IBV_WC_SUCCESS)
      --(is_receive ? pair->second->receives_unpolled : pair->second->sends_unpolled);
  }
  return count;
}

int post_send(ibv_qp* handle, ibv_send_wr* request, ibv_send_wr** refused) {
  Pair& pair = pair_of(handle);
  {
    const std::scoped_lock lock(Fabric::instance().mutex);
    for (; request != nullptr; request = request->next) {
      *refused = request;
      const bool is_known = request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && request->num_sge <= 1;
      if (handle->state != IBV_QPS_RTS && handle->state != IBV_QPS_ERR) return EINVAL;
      if (!is_known) return EINVAL;
      if (pair.sends_unpolled == pair.cap.max_send_wr) return ENOMEM;
      ++pair.sends_unpolled;
      Write write{.wr_id = request->wr_id,
                  .target = request->wr.rdma.remote_addr,
                  .rkey = request->wr.rdma.rkey,
                  .immediate = request->imm_data,
                  .due = context_of(pair).soon()};
      if (request->num_sge == 1) {
        write.source = request->sg_list->addr;
        write.size_bytes = request->sg_list->length;
        write.lkey = request->sg_list->lkey;
      }
      if (handle->state == IBV_QPS_ERR) {
        ibv_wc completion{};
        completion.wr_id = write.wr_id;
        completion.status = IBV_WC_WR_FLUSH_ERR;
        completion.qp_num = handle->qp_num;
        Fabric::instance().complete(queue_of(handle->send_cq), completion);
      } else {
        pair.to_send.push_back(write);
      }
    }
  }
  Fabric::instance().wake();
  return 0;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* request, ibv_recv_wr** refused) {
  Pair& pair = pair_of(handle);
  const std::scoped_lock lock(Fabric::instance().mutex);
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (handle->state == IBV_QPS_RESET) return EINVAL;
    if (pair.receives_unpolled == pair.cap.max_recv_wr) return ENOMEM;
    ++pair.receives_unpolled;
    pair.receives.push_back(request->wr_id);
  }
  return 0;
}

/// What a change of state must set, as the specification has it for RC.
int required_mask(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_INIT:
      return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    case IBV_QPS_RTR:
      return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER;
    case IBV_QPS_RTS:
      return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC;
    default:
      return IBV_QP_STATE;
  }
}

template <class T, class Handle>
Handle* give(std::unique_ptr<T> object) {
  return &object.release()->handle;
}

}  // namespace

extern "C" {

/// For tests: the mischief of the devices that this thread opens from now on; null: as the environment says.
SOFT_NIC_EXPORT void soft_nic_configure(const char* words) {
  thread_has_words = words != nullptr;
  words_of_thread = words != nullptr ? words : "";
}

SOFT_NIC_EXPORT ibv_device** ibv_get_device_list(int* count) {
  const int num = current_mischief().devices;
  auto** list = static_cast<ibv_device**>(std::calloc(static_cast<std::size_t>(num) + 1, sizeof(ibv_device*)));
  static std::map<int, ibv_device> devices;
  const std::scoped_lock lock(Fabric::instance().mutex);
  for (int i = 0; i < num; ++i) {
    const auto [device, is_new] = devices.try_emplace(i);
    if (is_new) {  // later on others read it
      device->second.node_type = IBV_NODE_CA;
      std::strncpy(device->second.name, ("soft" + std::to_string(i)).c_str(), sizeof(device->second.name) - 1);
    }
    list[i] = &device->second;
  }
  if (count != nullptr) *count = num;
  return list;
}
SOFT_NIC_EXPORT void ibv_free_device_list(ibv_device** list) { std::free(list); }
SOFT_NIC_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }

SOFT_NIC_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  auto context = std::make_unique<Context>();
  context->mischief = current_mischief();
  context->random.seed(context->mischief.seed);
  context->handle.device = device;
  context->handle.ops.poll_cq = poll_cq;
  context->handle.ops.post_send = post_send;
  context->handle.ops.post_recv = post_recv;
  context->handle.async_fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  Fabric::instance().open();
  return give<Context, ibv_context>(std::move(context));
}
SOFT_NIC_EXPORT int ibv_close_device(ibv_context* handle) {
  ::close(handle->async_fd);
  delete &context_of(handle);
  Fabric::instance().close();
  return 0;
}

SOFT_NIC_EXPORT int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* out) {
  *out = {};
  out->phys_port_cnt = 1;
  out->max_cqe = 1 << 22;
  out->max_qp_wr = 1 << 15;
  return 0;
}
SOFT_NIC_EXPORT int ibv_query_port(ibv_context* handle, std::uint8_t port, _compat_ibv_port_attr* out) {
  if (port != 1) return EINVAL;
  auto& attributes = *reinterpret_cast<ibv_port_attr*>(out);
  Context& context = context_of(handle);
  const std::scoped_lock lock(Fabric::instance().mutex);
  const std::uint32_t nic = Fabric::instance().nic();
  attributes.state = IBV_PORT_ACTIVE;
  attributes.active_mtu = IBV_MTU_4096;
  attributes.max_msg_sz = 1U << 30;
  attributes.gid_tbl_len = context.mischief.roce ? kGids : 1;
  attributes.lid = static_cast<std::uint16_t>(context.mischief.roce ? 0 : nic);
  attributes.link_layer = context.mischief.roce ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  return 0;
}
SOFT_NIC_EXPORT int _ibv_query_gid_ex(ibv_context* handle, std::uint32_t port, std::uint32_t index,
                                      ibv_gid_entry* entry, std::uint32_t /*flags*/, std::size_t /*entry_bytes*/) {
  Context& context = context_of(handle);
  if (port != 1 || index >= (context.mischief.roce ? kGids : 1)) return EINVAL;
  const std::scoped_lock lock(Fabric::instance().mutex);
  gid_of(Fabric::instance().nic(), context.mischief.roce && index >= 2, entry->gid.raw);
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = !context.mischief.roce ? IBV_GID_TYPE_IB
                    : index % 2 == 1       ? IBV_GID_TYPE_ROCE_V2
                                           : IBV_GID_TYPE_ROCE_V1;
  return 0;
}

SOFT_NIC_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto domain = std::make_unique<Domain>();
  domain->handle.context = context;
  return give<Domain, ibv_pd>(std::move(domain));
}
SOFT_NIC_EXPORT int ibv_dealloc_pd(ibv_pd* handle) {
  delete &domain_of(handle);
  return 0;
}

SOFT_NIC_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t /*iova*/,
                                         unsigned int access) {
  auto region = std::make_unique<Region>();
  region->handle.context = pd->context;
  region->handle.pd = pd;
  region->handle.addr = address;
  region->handle.length = bytes;
  region->access = static_cast<int>(access);
  const std::scoped_lock lock(Fabric::instance().mutex);
  region->handle.lkey = region->handle.rkey = Fabric::instance().next_number();
  Fabric::instance().regions.emplace(region->handle.rkey, region.get());
  return give<Region, ibv_mr>(std::move(region));
}
SOFT_NIC_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, address, bytes, reinterpret_cast<std::uintptr_t>(address), static_cast<unsigned>(access));
}
SOFT_NIC_EXPORT int ibv_dereg_mr(ibv_mr* handle) {
  const std::scoped_lock lock(Fabric::instance().mutex);
  Fabric::instance().regions.erase(handle->rkey);
  delete &region_of(handle);
  return 0;
}

SOFT_NIC_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                                      int /*vector*/) {
  auto queue = std::make_unique<Queue>();
  queue->handle.context = context;
  queue->handle.cq_context = user;
  queue->handle.channel = channel;
  queue->handle.cqe = entries;
  return give<Queue, ibv_cq>(std::move(queue));
}
SOFT_NIC_EXPORT int ibv_destroy_cq(ibv_cq* handle) {
  const std::scoped_lock lock(Fabric::instance().mutex);
  delete &queue_of(handle);
  return 0;
}

SOFT_NIC_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (attributes->qp_type != IBV_QPT_RC || attributes->sq_sig_all == 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto pair = std::make_unique<Pair>();
  pair->handle.context = pd->context;
  pair->handle.pd = pd;
  pair->handle.send_cq = attributes->send_cq;
  pair->handle.recv_cq = attributes->recv_cq;
  pair->handle.state = IBV_QPS_RESET;
  pair->handle.qp_type = IBV_QPT_RC;
  pair->cap = attributes->cap;
  const std::scoped_lock lock(Fabric::instance().mutex);
  pair->handle.qp_num = Fabric::instance().next_number();
  Fabric::instance().pairs.emplace(pair->handle.qp_num, pair.get());
  return give<Pair, ibv_qp>(std::move(pair));
}
SOFT_NIC_EXPORT int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* attributes, int mask) {
  const std::scoped_lock lock(Fabric::instance().mutex);
  Pair& pair = pair_of(handle);
  const int required = required_mask(attributes->qp_state);
  const bool is_next = static_cast<int>(attributes->qp_state) == static_cast<int>(handle->state) + 1;
  if ((mask & required) != required || !is_next) return EINVAL;
  if (attributes->qp_state == IBV_QPS_RTR) {
    const ibv_ah_attr& to = attributes->ah_attr;
    const Context& context = context_of(handle->context);
    // RoCE is always routed by GID, and this fabric carries v2 only: a wrong index is an unreachable peer.
    if (context.mischief.roce && (to.is_global == 0 || to.grh.sgid_index % 2 != 1)) return ENETUNREACH;
    pair.peer_nic =
        to.is_global != 0 ? static_cast<std::uint32_t>(to.grh.dgid.raw[14] << 8 | to.grh.dgid.raw[15]) : to.dlid;
    pair.peer_pair = attributes->dest_qp_num;
  }
  // Linux's Soft-RoCE takes the largest count for "for ever"; real NICs do so for rnr_retry alone.
  if (attributes->qp_state == IBV_QPS_RTS) pair.retries_for_ever = attributes->retry_cnt == 7;
  handle->state = attributes->qp_state;
  return 0;
}
SOFT_NIC_EXPORT int ibv_destroy_qp(ibv_qp* handle) {
  const std::scoped_lock lock(Fabric::instance().mutex);
  Fabric::instance().pairs.erase(handle->qp_num);
  delete &pair_of(handle);
  return 0;
}

SOFT_NIC_EXPORT int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
  std::uint64_t count = 0;
  if (::read(handle->async_fd, &count, sizeof(count)) != static_cast<ssize_t>(sizeof(count))) return -1;
  const std::scoped_lock lock(Fabric::instance().mutex);
  Context& context = context_of(handle);
  *event = context.events.front();
  context.events.pop_front();
  return 0;
}
SOFT_NIC_EXPORT void ibv_ack_async_event(ibv_async_event* /*event*/) {}

SOFT_NIC_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_WR_FLUSH_ERR:
      return "work request flushed";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded";
    default:
      return "unknown";
  }
}
SOFT_NIC_EXPORT const char* ibv_event_type_str(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
      return "device fatal";
    case IBV_EVENT_QP_FATAL:
      return "queue pair fatal";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "local access violation";
    case IBV_EVENT_PORT_ERR:
      return "port error";
    case IBV_EVENT_CQ_ERR:
      return "completion queue overrun";
    default:
      return "unknown event";
  }
}

}  // extern "C"
