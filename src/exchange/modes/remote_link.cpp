#include "exchange/modes/remote_link.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"
#include "moelink/stream.hpp"
#include "peers/communicator_rendezvous.hpp"
#include "peers/shared_put_proxy.hpp"

namespace moelink {
namespace {

/// Zeroed memory that the device reads and writes: its own, or the host's.
class RegionMemory {
 public:
  RegionMemory(Device device, bool in_device, std::size_t size_bytes) {
    if (in_device) {
      memory_.emplace<Buffer>(device, size_bytes);
    } else {
      memory_.emplace<PinnedBuffer>(device, size_bytes);
    }
  }
  [[nodiscard]] PutMemory view() const {
    if (const auto* buffer = std::get_if<Buffer>(&memory_)) {
      return {static_cast<std::byte*>(buffer->data()), buffer->size_bytes(), buffer->device()};
    }
    const auto& pinned = std::get<PinnedBuffer>(memory_);
    return {static_cast<std::byte*>(pinned.data()), pinned.size_bytes(), Device::host()};
  }

 private:
  std::variant<std::monostate, Buffer, PinnedBuffer> memory_;
};

}  // namespace

struct RemoteLink::Regions {
  Regions(Device device, bool in_device, std::size_t send_bytes, std::size_t receive_bytes)
      : send(device, in_device, send_bytes), receive(device, in_device, receive_bytes) {}
  RegionMemory send;
  RegionMemory receive;
};

RemoteLink::RemoteLink(const ExchangeCore& core, const NvlinkShape& shape)
    : plan_(RemotePlan::of(shape, widest_row_bytes(core.shape, core.config))),
      args_(plan_.args_of(core.shape.nodes, core.shape.rank)),
      layout_(RemoteTables::of(core.shape.num_ranks, args_.num_remotes, plan_.max_chunks)),
      proxy_(
          shared_put_proxy(core.communicator, remotes_of(core.shape.nodes, core.shape.rank), core.config.transport)) {
  const Communicator& communicator = core.communicator;
  agree_over_ranks(
      *communicator.state().bootstrap, "Exchange: tables of remotes", [&] { write_tables(core); },
      communicator.deadline());
  open(communicator);
}

RemoteLink::~RemoteLink() { proxy_->leave(std::move(channel_), std::move(regions_)); }

void RemoteLink::write_tables(const ExchangeCore& core) {
  tables_ = Buffer(core.communicator.device(), static_cast<std::size_t>(layout_.total_bytes));
  const Stream stream(core.communicator.device(), {.num_threads = 1});
  const std::vector<RankRoute> routes = routes_of_ranks(core.shape.nodes, core.shape.rank);
  const std::vector<i32> sources = sources_in_order(core.shape.nodes, core.shape.rank);
  fill_bytes(tables_.data(), 0, tables_.size_bytes(), stream);
  copy_bytes(layout_.routes.in(tables_.data()), routes.data(), routes.size() * sizeof(RankRoute), stream);
  copy_bytes(layout_.sources.in(tables_.data()), sources.data(), sources.size() * sizeof(i32), stream);
  stream.synchronize();
}

void RemoteLink::open(const Communicator& communicator) {
  CommunicatorRendezvous rendezvous(communicator, kExchangeName);
  const Device device = communicator.device();
  const auto send_bytes = static_cast<std::size_t>(args_.num_remotes * args_.send_layout.pitch_bytes);
  const auto receive_bytes = static_cast<std::size_t>(args_.num_remotes * args_.receive_layout.pitch_bytes);
  const auto open_in = [&](bool in_device) {
    agree_over_ranks(
        *communicator.state().bootstrap, "Exchange: memory for remotes",
        [&] { regions_ = std::make_shared<Regions>(device, in_device, send_bytes, receive_bytes); },
        communicator.deadline());
    channel_ = proxy_->open(rendezvous, {.device = device,
                                         .regions = {regions_->send.view(), regions_->receive.view()},
                                         .max_chunks = plan_.max_chunks});
  };
  // Whether NICs reach the memory of GPUs shows when it is registered; if one does not, all ranks stage.
  const auto on_gpu = all_gather_value(*communicator.state().bootstrap, "Exchange: devices of ranks",
                                       device.is_host() ? 0 : 1, communicator.deadline());
  const bool all_on_gpus = std::find(on_gpu.begin(), on_gpu.end(), 0) == on_gpu.end();
  if (proxy_->kind() == PutKind::verbs && all_on_gpus) {
    try {
      return open_in(/*in_device=*/true);
    } catch (const Error&) {
      communicator.check();  // else it was the registration
    }
  }
  open_in(/*in_device=*/false);
}

RemoteArgs RemoteLink::args() const {
  RemoteArgs args = args_;
  args.routes = layout_.routes.in(tables_.data());
  args.sources = layout_.sources.in(tables_.data());
  args.pieces = layout_.pieces.in(tables_.data());
  args.relayed = layout_.relayed.in(tables_.data());
  args.free = layout_.free.in(tables_.data());
  args.send = reinterpret_cast<u8*>(regions_->send.view().data);
  args.receive = reinterpret_cast<u8*>(regions_->receive.view().data);
  args.channel = channel_->view();
  return args;
}

std::string RemoteLink::describe() const {
  return text(args_.num_remotes, " remotes over ", name_of(proxy_->kind()), " (", proxy_->description(),
              "), rows in the memory of ", regions_->send.view().device.name(), ", ", 1 << plan_.log2_slots_per_chunk,
              " rows a chunk");
}

}  // namespace moelink
