#include "transports/verbs/nic.hpp"

#if MOELINK_HAVE_VERBS

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/system_error.hpp"
#include "base/text.hpp"
#include "transports/verbs/device_memory.hpp"

namespace moelink {
namespace {

/// Receives are handed back in bunches of up to so many.
constexpr int kReceiveBatch = 16;

std::string pci_path_of(const ibv_device& device) {
  char* path = ::realpath(text(device.ibdev_path, "/device").c_str(), nullptr);
  const std::string result = path != nullptr ? path : "";
  std::free(path);
  return result;
}

GidEntry::Type gid_type_of(std::uint32_t type) {
  return type == IBV_GID_TYPE_ROCE_V2   ? GidEntry::Type::roce_v2
         : type == IBV_GID_TYPE_ROCE_V1 ? GidEntry::Type::roce_v1
                                        : GidEntry::Type::infiniband;
}

std::vector<GidEntry> list_gids(const VerbsLibrary& verbs, ibv_context* context, int port, int table_length) {
  std::vector<GidEntry> gids;
  for (int index = 0; index < table_length; ++index) {
    ibv_gid_entry entry{};
    if (verbs.query_gid_ex(context, static_cast<std::uint32_t>(port), static_cast<std::uint32_t>(index), &entry, 0,
                           sizeof(entry)) != 0) {
      continue;  // a hole in the table
    }
    GidEntry gid{.index = index, .type = gid_type_of(entry.gid_type)};
    std::memcpy(gid.bytes.data(), entry.gid.raw, gid.bytes.size());
    if (std::ranges::any_of(gid.bytes, [](auto byte) { return byte != 0; })) gids.push_back(gid);
  }
  return gids;
}

void list_ports_of(const VerbsLibrary& verbs, ibv_device* device, std::vector<PortInfo>& ports) {
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(verbs.open_device(device), verbs.close_device);
  ibv_device_attr attributes{};
  if (context == nullptr || verbs.query_device(context.get(), &attributes) != 0) return;  // no permission, or dying
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    if (verbs.query_port(context.get(), static_cast<std::uint8_t>(number), port) != 0) continue;
    ports.push_back(
        {.device = verbs.get_device_name(device),
         .port = number,
         .pci_path = pci_path_of(*device),
         .link_layer = port.link_layer == IBV_LINK_LAYER_ETHERNET ? LinkLayer::ethernet : LinkLayer::infiniband,
         .active = port.state == IBV_PORT_ACTIVE,
         .lid = port.lid,
         .mtu = port.active_mtu,
         .gids = list_gids(verbs, context.get(), number, port.gid_tbl_len)});
  }
}

ibv_context* open_by_name(const VerbsLibrary& verbs, const std::string& name) {
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (name == verbs.get_device_name(list[i])) context = verbs.open_device(list[i]);
  }
  if (list != nullptr) verbs.free_device_list(list);
  if (context == nullptr) throw system_error(text("opening RDMA device ", name, " failed"));
  return context;
}

}  // namespace

std::vector<PortInfo> list_ports(const VerbsLibrary& verbs) {
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  std::vector<PortInfo> ports;
  for (int i = 0; list != nullptr && i < count; ++i) list_ports_of(verbs, list[i], ports);
  if (list != nullptr) verbs.free_device_list(list);
  return ports;
}

VerbsNic::VerbsNic(const VerbsLibrary& verbs, const PortInfo& port, const VerbsSettings& settings,
                   const PutOptions& options)
    : verbs_(verbs),
      port_(port),
      gid_(choose_gid(port, settings.gid_index)),
      settings_(settings),
      options_(options),
      context_(open_by_name(verbs, port.device), verbs.close_device),
      domain_(verbs.alloc_pd(context_.get()), verbs.dealloc_pd),
      completions_(nullptr, verbs.destroy_cq),
      links_(static_cast<std::size_t>(options.num_ranks)) {
  if (domain_ == nullptr) throw system_error(text("making a protection domain on ", port.device, " failed"));
  ibv_device_attr device{};
  ibv_port_attr attributes{};
  if (verbs.query_device(context_.get(), &device) != 0 ||
      verbs.query_port(context_.get(), static_cast<std::uint8_t>(port.port), attributes) != 0) {
    throw system_error(text("asking ", port.device, " for its limits failed"));
  }
  max_message_bytes_ = attributes.max_msg_sz;
  // A completion queue that overruns loses completions: it holds all that can be outstanding.
  const std::size_t entries =
      options.remotes.size() * static_cast<std::size_t>(options.send_depth + options.receive_depth);
  if (entries > static_cast<std::size_t>(device.max_cqe) || options.send_depth > device.max_qp_wr ||
      options.receive_depth > device.max_qp_wr) {
    throw Error(ErrorCode::capacity,
                text(port.device, " has ", device.max_qp_wr, " entries a queue and ", device.max_cqe, " completions; ",
                     options.remotes.size(), " remotes with ", options.send_depth, " puts and ", options.receive_depth,
                     " receives each need ", entries, ": lower the depths"));
  }
  completions_.reset(verbs.create_cq(context_.get(), std::max(static_cast<int>(entries), 1), nullptr, nullptr, 0));
  if (completions_ == nullptr) {
    throw system_error(
        text("making a completion queue of ", entries, " entries on ", port.device, " failed (check `ulimit -l`)"));
  }
  // Events are looked for, not waited for.
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw system_error(text("making the events of ", port.device, " non-blocking failed"));
  }
  if (::getrandom(&packet_number_, sizeof(packet_number_), 0) != static_cast<ssize_t>(sizeof(packet_number_))) {
    throw system_error("getrandom failed");
  }
  packet_number_ &= 0xffffff;
  for (const int peer : options.remotes) create_link(peer);
}

void VerbsNic::create_link(int peer) {
  Link& link = links_[static_cast<std::size_t>(peer)];
  ibv_qp_init_attr init{};
  init.send_cq = completions_.get();
  init.recv_cq = completions_.get();
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  init.cap = {.max_send_wr = static_cast<std::uint32_t>(options_.send_depth),
              .max_recv_wr = static_cast<std::uint32_t>(options_.receive_depth),
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  link.queue_pair = Handle<ibv_qp>(verbs_.create_qp(domain_.get(), &init), verbs_.destroy_qp);
  if (link.queue_pair == nullptr) {
    throw system_error(text("making the queue pair for rank ", peer, " on ", port_.device,
                            " failed (check `ulimit -l` and the device's limits)"));
  }
  link.queued.reserve(static_cast<std::size_t>(options_.send_depth));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<std::uint8_t>(port_.port);
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  modify(peer, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  post_receives(peer, options_.receive_depth);
}

NicAddress VerbsNic::address() const {
  NicAddress mine{.link_layer = port_.link_layer,
                  .lid = port_.lid,
                  .gid = gid_.bytes,
                  .mtu = port_.mtu,
                  .packet_number = packet_number_,
                  .queue_pairs = std::vector<std::uint32_t>(links_.size())};
  for (const int peer : options_.remotes) {
    const auto at = static_cast<std::size_t>(peer);
    mine.queue_pairs[at] = links_[at].queue_pair->qp_num;
  }
  return mine;
}

void VerbsNic::connect(int peer, const NicAddress& theirs) {
  if (theirs.link_layer != port_.link_layer) {
    throw Error(ErrorCode::mismatch,
                text("rank ", peer, " and rank ", options_.rank, " chose RDMA ports of different ",
                     "kinds (InfiniBand and Ethernet); name matching ones in MOELINK_VERBS_DEVICES"));
  }
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = static_cast<ibv_mtu>(std::min(port_.mtu, theirs.mtu));
  ready.dest_qp_num = theirs.queue_pairs[static_cast<std::size_t>(options_.rank)];
  ready.rq_psn = theirs.packet_number;
  ready.max_dest_rd_atomic = 1;
  ready.min_rnr_timer = 1;  // 10 us: a receiver that is behind catches up soon
  ready.ah_attr.dlid = theirs.lid;
  ready.ah_attr.sl = static_cast<std::uint8_t>(settings_.service_level);
  ready.ah_attr.port_num = static_cast<std::uint8_t>(port_.port);
  const bool same_subnet = std::equal(theirs.gid.begin(), theirs.gid.begin() + 8, gid_.bytes.begin());
  if (port_.link_layer == LinkLayer::ethernet || theirs.lid == 0 || !same_subnet) {
    ready.ah_attr.is_global = 1;
    std::memcpy(ready.ah_attr.grh.dgid.raw, theirs.gid.data(), theirs.gid.size());
    ready.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_.index);
    ready.ah_attr.grh.hop_limit = 64;
    ready.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(settings_.traffic_class);
  }
  modify(peer, ready,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         "RTR");
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = packet_number_;
  send.timeout = static_cast<std::uint8_t>(timeout_exponent(settings_.timeout));
  send.retry_cnt = 6;  // half a second and more until a dead peer is an error; 7 is for ever to Soft-RoCE
  send.rnr_retry = 7;  // for ever: a receiver that is slow is not broken; waits have deadlines of their own
  send.max_rd_atomic = 1;
  modify(peer, send,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
}

void VerbsNic::modify(int peer, ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = verbs_.modify_qp(links_[static_cast<std::size_t>(peer)].queue_pair.get(), &attributes, mask);
  if (error != 0) {
    throw system_error(text("the queue pair of rank ", options_.rank, " for rank ", peer, " on ", describe(),
                            " did not become ", state, " (is the other side's address reachable from here?)"),
                       error > 0 ? error : errno);
  }
}

MemoryHandle VerbsNic::register_memory(const PutMemory& memory) const {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (!memory.device.is_host()) {
    return register_device_memory(verbs_, domain_.get(), memory, access, settings_.relaxed_ordering);
  }
  ibv_mr* region = nullptr;
  if (settings_.relaxed_ordering && verbs_.reg_mr_iova2 != nullptr) {
    // Safe, because nobody looks at a payload before its completion, which is written in order after it.
    region = verbs_.reg_mr_iova2(domain_.get(), memory.data, memory.size_bytes,
                                 reinterpret_cast<std::uintptr_t>(memory.data),
                                 static_cast<unsigned>(access) | static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING));
  } else {
    region = verbs_.reg_mr(domain_.get(), memory.data, memory.size_bytes, access);
  }
  if (region == nullptr) {
    throw system_error(text("registering ", memory.size_bytes, " bytes with ", port_.device,
                            " failed; raise the limit of locked memory (`ulimit -l unlimited`)"));
  }
  return {region, verbs_.dereg_mr};
}

void VerbsNic::queue_write(int peer, std::uint64_t wr_id, const ibv_sge& source, std::uint64_t target,
                           std::uint32_t rkey, std::uint32_t immediate) {
  Link& link = links_[static_cast<std::size_t>(peer)];
  if (link.queued.empty()) touched_.push_back(peer);
  Work& work = link.queued.emplace_back();
  work.source = source;
  work.request = {};
  work.request.wr_id = wr_id;
  work.request.sg_list = &work.source;
  work.request.num_sge = source.length != 0 ? 1 : 0;
  work.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  work.request.imm_data = htonl(immediate);
  work.request.wr.rdma.remote_addr = target;
  work.request.wr.rdma.rkey = rkey;
  if (link.queued.size() > 1) link.queued[link.queued.size() - 2].request.next = &work.request;
}

void VerbsNic::post() {
  for (const int peer : touched_) {
    Link& link = links_[static_cast<std::size_t>(peer)];
    ibv_send_wr* refused = nullptr;
    const int error = ibv_post_send(link.queue_pair.get(), &link.queued.front().request, &refused);
    link.queued.clear();
    if (error != 0) {
      throw PutFailure(peer, text("rank ", options_.rank, " could not post puts to rank ", peer, " on ", describe(),
                                  ": ", std::strerror(error), note_));
    }
  }
  touched_.clear();
}

int VerbsNic::poll(std::span<ibv_wc> completions) {
  const int count = ibv_poll_cq(completions_.get(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) throw PutFailure(-1, text("polling the completions of ", describe(), " failed", note_));
  return count;
}

void VerbsNic::give_back_receive(int peer) {
  Link& link = links_[static_cast<std::size_t>(peer)];
  if (++link.receives_to_post >= std::min(kReceiveBatch, options_.receive_depth)) {
    post_receives(peer, link.receives_to_post);
    link.receives_to_post = 0;
  }
}

void VerbsNic::post_receives(int peer, int count) {
  ibv_recv_wr request{};
  request.wr_id = kArrival | static_cast<std::uint64_t>(peer);
  for (int i = 0; i < count; ++i) {
    ibv_recv_wr* refused = nullptr;
    const int error = ibv_post_recv(links_[static_cast<std::size_t>(peer)].queue_pair.get(), &request, &refused);
    if (error != 0) {
      throw PutFailure(peer, text("rank ", options_.rank, " could not post receives for rank ", peer, " on ",
                                  describe(), ": ", std::strerror(error), note_));
    }
  }
}

int VerbsNic::peer_of(std::uint32_t queue_pair) const {
  for (const int peer : options_.remotes) {
    if (links_[static_cast<std::size_t>(peer)].queue_pair->qp_num == queue_pair) return peer;
  }
  return -1;
}

void VerbsNic::check_events() {
  ibv_async_event event{};
  if (verbs_.get_async_event(context_.get(), &event) != 0) return;
  const std::string name = verbs_.event_type_str(event.event_type);
  int peer = -1;
  bool is_fatal = false;
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      peer = peer_of(event.element.qp->qp_num);
      is_fatal = true;
      break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      is_fatal = true;
      break;
    default:
      break;
  }
  verbs_.ack_async_event(&event);
  if (is_fatal) {
    throw PutFailure(peer, peer >= 0 ? text("the connection of rank ", options_.rank, " with rank ", peer, " over ",
                                            describe(), " broke: ", name, note_)
                                     : text("the NIC of rank ", options_.rank, ", ", describe(), ", failed: ", name));
  }
  // A port that goes down may come back before the retries end; if not, they fail and this explains why. A device's
  // other ports tell of themselves here, too.
  if (event.element.port_num != port_.port) return;
  if (event.event_type == IBV_EVENT_PORT_ERR) note_ = text("; ", port_.device, " had reported: ", name);
  if (event.event_type == IBV_EVENT_PORT_ACTIVE) note_.clear();
}

}  // namespace moelink

#endif
