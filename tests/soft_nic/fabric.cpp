#include "soft_nic/fabric.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/system_error.hpp"

namespace moelink::soft_nic {
namespace {

constexpr std::size_t kPieceBytes = 1500;
/// How long a peer that is not there is tried. A real NIC takes a second or so.
constexpr std::chrono::milliseconds kRetries{60};
/// Bytes that may wait for one peer's socket.
constexpr std::size_t kMostBacklog = std::size_t{4} << 20;

bool covers(const Region& region, std::uint64_t address, std::uint64_t size) {
  const auto begin = reinterpret_cast<std::uintptr_t>(region.handle.addr);
  return address >= begin && size <= region.handle.length && address - begin <= region.handle.length - size;
}

}  // namespace

Fabric& Fabric::instance() {
  static Fabric fabric;
  return fabric;
}

void Fabric::open() {
  const std::scoped_lock life(life_mutex_);
  if (users_++ == 0) {
    const std::scoped_lock lock(mutex);
    // A device keeps its number while no program has it open; a forked child's device is another one.
    if (owner_ != ::getpid()) nic_ = 0;
    owner_ = ::getpid();
    listener_ = listen_as_nic(nic_);
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
}

void Fabric::close() {
  const std::scoped_lock life(life_mutex_);
  if (--users_ != 0) return;
  thread_.request_stop();
  wake();
  thread_.join();
  outgoing_.clear();
  accepted_.clear();
  landings_.clear();
  late_.clear();
  listener_.reset();
  wake_.reset();
}

void Fabric::wake() {
  const std::uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof(one)) < 0) return;  // full: it is awake
}

std::uint32_t Fabric::next_number() { return ++last_number_; }

void Fabric::complete(Queue& queue, const ibv_wc& completion) {
  if (queue.entries.size() >= static_cast<std::size_t>(queue.handle.cqe)) {
    if (!queue.overrun) raise_event(context_of(queue.handle.context), IBV_EVENT_CQ_ERR, nullptr);
    queue.overrun = true;
    return;
  }
  queue.entries.push_back(completion);
}

void Fabric::raise_event(Context& context, ibv_event_type type, Pair* pair) {
  ibv_async_event event{};
  event.event_type = type;
  if (pair != nullptr) {
    event.element.qp = &pair->handle;
  } else {
    event.element.port_num = context.mischief.event == "other_port_err" ? 2 : 1;
  }
  context.events.push_back(event);
  const std::uint64_t one = 1;
  if (::write(context.handle.async_fd, &one, sizeof(one)) < 0) context.events.pop_back();
}

void Fabric::break_pair(Pair& pair, const Write* first, ibv_wc_status status) {
  if (pair.handle.state == IBV_QPS_ERR) return;
  pair.handle.state = IBV_QPS_ERR;
  ibv_wc completion{};
  completion.qp_num = pair.handle.qp_num;
  if (first != nullptr) {
    completion.wr_id = first->wr_id;
    completion.status = status;
    completion.vendor_err = 0x50f7;
    complete(queue_of(pair.handle.send_cq), completion);
  }
  completion.status = IBV_WC_WR_FLUSH_ERR;
  for (const auto& [number, write] : pair.in_flight) {
    completion.wr_id = write.wr_id;
    complete(queue_of(pair.handle.send_cq), completion);
  }
  for (const Write& write : pair.to_send) {
    completion.wr_id = write.wr_id;
    complete(queue_of(pair.handle.send_cq), completion);
  }
  for (const std::uint64_t receive : pair.receives) {
    completion.wr_id = receive;
    complete(queue_of(pair.handle.recv_cq), completion);
  }
  pair.in_flight.clear();
  pair.to_send.clear();
  pair.receives.clear();
}

void Fabric::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    wait_for_work();
    const std::scoped_lock lock(mutex);
    accept_wires();
    read_wires();
    launch_writes();
    land_writes();
    finish_writes();
    drop_broken_wires();
  }
}

void Fabric::wait_for_work() {
  std::vector<pollfd> watched;
  timespec timeout{.tv_sec = 0, .tv_nsec = 200'000'000};
  {
    const std::scoped_lock lock(mutex);
    watched = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const auto watch = [&](const Wire& wire) {
      watched.push_back({wire.fd(), static_cast<short>(wire.wants_to_send() ? POLLIN | POLLOUT : POLLIN), 0});
    };
    for (const auto& [nic, wire] : outgoing_) watch(*wire);
    for (const auto& wire : accepted_) watch(*wire);
    const bool has_writes =
        std::ranges::any_of(pairs, [](const auto& entry) { return !entry.second->to_send.empty(); });
    if (has_writes || !landings_.empty() || !late_.empty()) timeout.tv_nsec = has_progress_ ? 0 : 30'000;
    has_progress_ = false;
  }
  ::ppoll(watched.data(), watched.size(), &timeout, nullptr);
  std::uint64_t count = 0;
  if (::read(wake_.get(), &count, sizeof(count)) < 0) return;  // nothing was posted
}

void Fabric::accept_wires() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    accepted_.push_back(std::make_shared<Wire>(std::move(socket)));
  }
}

void Fabric::launch_writes() {
  for (const auto& [number, pair] : pairs) {
    while (launch_one(*pair)) {
    }
  }
}

/// Starts one write of the pair, if one is due: the oldest, or with `reorder` any.
bool Fabric::launch_one(Pair& pair) {
  Context& context = context_of(pair);
  if (pair.handle.state != IBV_QPS_RTS || pair.is_stuck || pair.to_send.empty()) return false;
  const std::size_t at = context.mischief.reorder ? context.random() % pair.to_send.size() : 0;
  if (pair.to_send[at].due > Clock::now()) return false;
  const auto wire = outgoing_.find(pair.peer_nic);
  if (wire != outgoing_.end() && wire->second->backlog_bytes() > kMostBacklog) return false;
  const Write write = pair.to_send[at];
  pair.to_send.erase(pair.to_send.begin() + static_cast<std::ptrdiff_t>(at));
  launch(pair, write);
  has_progress_ = true;
  return true;
}

void Fabric::launch(Pair& pair, const Write& write) {
  Context& context = context_of(pair);
  const std::uint64_t number = ++last_write_;
  pair.in_flight.emplace(number, write);
  const std::int64_t nth = ++context.num_writes;
  if (nth == context.mischief.event_after) {
    const std::string& name = context.mischief.event;
    raise_event(context,
                name == "qp_fatal"       ? IBV_EVENT_QP_FATAL
                : name == "device_fatal" ? IBV_EVENT_DEVICE_FATAL
                                         : IBV_EVENT_PORT_ERR,
                name == "qp_fatal" ? &pair : nullptr);
  }
  std::shared_ptr<Wire>& wire = outgoing_[pair.peer_nic];
  if (wire == nullptr || wire->is_broken()) wire = std::make_shared<Wire>(Wire::to(pair.peer_nic));
  if (nth == context.mischief.drop_after || wire->is_broken()) {
    pair.is_stuck = true;
    late_.push_back({pair.handle.qp_num, number, IBV_WC_RETRY_EXC_ERR, Clock::now() + kRetries});
    return;
  }
  const auto region = regions.find(write.lkey);
  if (write.size_bytes != 0 && (region == regions.end() || region->second->handle.pd != pair.handle.pd ||
                                !covers(*region->second, write.source, write.size_bytes))) {
    late_.push_back({pair.handle.qp_num, number, IBV_WC_LOC_PROT_ERR, Clock::now()});
    return;
  }
  // As late as can be: whoever changes the source before its completion is found out.
  wire->queue({.kind = FrameKind::write,
               .to_pair = pair.peer_pair,
               .from_pair = pair.handle.qp_num,
               .rkey = write.rkey,
               .number = number,
               .target = write.target,
               .immediate = write.immediate,
               .size_bytes = write.size_bytes},
              reinterpret_cast<const std::byte*>(write.source));
}

void Fabric::read_wires() {
  const auto read = [&](const std::shared_ptr<Wire>& wire) {
    wire->progress();
    while (auto received = wire->take()) take(wire, std::move(*received));
  };
  for (const auto& [nic, wire] : outgoing_) read(wire);
  for (const auto& wire : accepted_) read(wire);
}

void Fabric::take(const std::shared_ptr<Wire>& wire, ReceivedFrame received) {
  const Frame frame = received.frame;
  if (frame.kind != FrameKind::write) {
    const auto pair = pairs.find(frame.to_pair);
    if (pair == pairs.end()) return;
    const ibv_wc_status status = frame.kind == FrameKind::done        ? IBV_WC_SUCCESS
                                 : frame.kind == FrameKind::no_access ? IBV_WC_REM_ACCESS_ERR
                                                                      : IBV_WC_RETRY_EXC_ERR;
    const auto due = frame.kind == FrameKind::no_such_pair ? Clock::now() + kRetries : context_of(*pair->second).soon();
    late_.push_back({frame.to_pair, frame.number, status, due});
    return;
  }
  Landing landing{.from = wire, .received = std::move(received)};
  landing.piece_bytes = std::max<std::size_t>(frame.size_bytes, 1);
  landing.due = Clock::now();
  if (const auto pair = pairs.find(frame.to_pair); pair != pairs.end()) {
    Context& context = context_of(*pair->second);
    if (context.mischief.split) landing.piece_bytes = std::min(kPieceBytes, frame.size_bytes / 4 + std::size_t{1});
    landing.due = context.soon();
    for (std::size_t start = 0; start < frame.size_bytes; start += landing.piece_bytes) landing.pieces.push_back(start);
    if (context.mischief.split) std::ranges::shuffle(landing.pieces, context.random);
  }
  landings_.push_back(std::move(landing));
}

/// One step of every landing write. Without `reorder` a pair's writes land one after the other, as over RC.
void Fabric::land_writes() {
  std::map<std::uint32_t, bool> is_busy;
  std::erase_if(landings_, [&](Landing& landing) {
    const std::uint32_t number = landing.received.frame.to_pair;
    const auto pair = pairs.find(number);
    if (pair == pairs.end() || pair->second->handle.state == IBV_QPS_ERR) {
      answer(landing, FrameKind::no_such_pair);
      return true;
    }
    if (!context_of(*pair->second).mischief.reorder && is_busy[number]) return false;
    const bool is_done = landing.due <= Clock::now() && land_step(landing);
    is_busy[number] = !is_done;
    return is_done;
  });
}

/// Whether the write has landed, or was refused.
bool Fabric::land_step(Landing& landing) {
  Pair& pair = *pairs.at(landing.received.frame.to_pair);
  Context& context = context_of(pair);
  const Frame& frame = landing.received.frame;
  if (refuse_if_forbidden(landing, pair)) return true;
  // A few pieces now; of a large payload more, or it would take for ever.
  for (std::size_t left = 1 + landing.pieces.size() / 16; left > 0 && !landing.pieces.empty(); --left) {
    const std::size_t start = landing.pieces.back();
    landing.pieces.pop_back();
    const std::size_t size = std::min(landing.piece_bytes, frame.size_bytes - start);
    std::memcpy(reinterpret_cast<std::byte*>(frame.target) + start, landing.received.payload.data() + start, size);
    has_progress_ = true;
  }
  if (!landing.pieces.empty()) {
    landing.due = context.soon();
    return false;
  }
  if (pair.receives.empty()) return false;  // the sender tries again until there is one
  ibv_wc completion{};
  completion.wr_id = pair.receives.front();
  completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_len = frame.size_bytes;
  completion.imm_data = frame.immediate;
  completion.wc_flags = IBV_WC_WITH_IMM;
  completion.qp_num = pair.handle.qp_num;
  pair.receives.pop_front();
  complete(queue_of(pair.handle.recv_cq), completion);
  answer(landing, FrameKind::done);
  return true;
}

bool Fabric::refuse_if_forbidden(const Landing& landing, Pair& pair) {
  const Frame& frame = landing.received.frame;
  const auto region = regions.find(frame.rkey);
  const bool is_allowed =
      frame.size_bytes == 0 || (region != regions.end() && region->second->handle.pd == pair.handle.pd &&
                                (region->second->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
                                covers(*region->second, frame.target, frame.size_bytes));
  if (is_allowed) return false;
  answer(landing, FrameKind::no_access);
  raise_event(context_of(pair), IBV_EVENT_QP_ACCESS_ERR, &pair);
  break_pair(pair, nullptr, IBV_WC_SUCCESS);
  return true;
}

void Fabric::answer(const Landing& landing, FrameKind kind) {
  const Frame& frame = landing.received.frame;
  landing.from->queue({.kind = kind, .to_pair = frame.from_pair, .from_pair = frame.to_pair, .number = frame.number},
                      nullptr);
  landing.from->progress();
}

void Fabric::finish_writes() {
  std::erase_if(late_, [&](const LateCompletion& late) {
    if (late.due > Clock::now()) return false;
    has_progress_ = true;
    const auto found = pairs.find(late.pair);
    if (found == pairs.end()) return true;
    Pair& pair = *found->second;
    if (late.status == IBV_WC_RETRY_EXC_ERR && pair.retries_for_ever) return true;
    const auto write = pair.in_flight.find(late.number);
    if (write == pair.in_flight.end()) return true;
    const Write done = write->second;
    pair.in_flight.erase(write);
    if (late.status != IBV_WC_SUCCESS) {
      break_pair(pair, &done, late.status);
      return true;
    }
    ibv_wc completion{};
    completion.wr_id = done.wr_id;
    completion.opcode = IBV_WC_RDMA_WRITE;
    completion.qp_num = pair.handle.qp_num;
    complete(queue_of(pair.handle.send_cq), completion);
    return true;
  });
}

void Fabric::drop_broken_wires() {
  std::erase_if(accepted_, [](const auto& wire) { return wire->is_broken(); });
  std::erase_if(outgoing_, [&](const auto& entry) {
    if (!entry.second->is_broken()) return false;
    for (const auto& [number, pair] : pairs) {
      if (pair->peer_nic != entry.first || pair->handle.state != IBV_QPS_RTS) continue;
      for (const auto& [write, unused] : pair->in_flight) {
        late_.push_back({number, write, IBV_WC_RETRY_EXC_ERR, Clock::now() + kRetries});
      }
    }
    return true;
  });
}

}  // namespace moelink::soft_nic
