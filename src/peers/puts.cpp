#include "moelink/puts.hpp"

#include <optional>
#include <vector>

#include "base/moved_from.hpp"
#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"
#include "peers/communicator_rendezvous.hpp"
#include "transports/make_put.hpp"
#include "transports/put_group.hpp"

namespace moelink {
namespace {

constexpr int kReceivesPerPut = 4;

PutOptions options_of(const Communicator& communicator, const PutsConfig& config) {
  if (config.depth < 1 || config.depth > 8192) {
    throw Error(ErrorCode::invalid_argument, text("Puts: depth is ", config.depth, "; expected 1 to 8192"));
  }
  PutOptions options{.rank = communicator.rank(),
                     .num_ranks = communicator.size(),
                     .send_depth = config.depth,
                     .receive_depth = kReceivesPerPut * config.depth,
                     .deadline = communicator.deadline()};
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer != communicator.rank()) options.remotes.push_back(peer);
  }
  return options;
}

}  // namespace

struct Puts::Impl {
  std::unique_ptr<PutTransport> transport;
  std::unique_ptr<LocalRegion> mine;
  std::vector<std::unique_ptr<RemoteRegion>> theirs;  // by rank
  std::vector<PutEvent> events;
};

Puts::Puts(const Communicator& communicator, std::span<std::byte> memory, const PutsConfig& config)
    : impl_(std::make_unique<Impl>()) {
  PutOptions options;
  std::optional<PutKind> kind;
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  agree_over_ranks(
      bootstrap, "Puts: arguments",
      [&] {
        options = options_of(communicator, config);
        if (!config.transport.empty()) kind = put_kind_of(config.transport, "PutsConfig::transport");
      },
      communicator.deadline());
  compare_over_ranks(bootstrap, "Puts",
                     {{"memory bytes", std::to_string(memory.size())}, {"depth", std::to_string(config.depth)}},
                     communicator.deadline());
  CommunicatorRendezvous rendezvous(communicator, "Puts");
  impl_->transport = connect_best_put(rendezvous, options, kind);
  agree_over_ranks(
      bootstrap, "Puts: memory",
      [&] {
        impl_->mine = impl_->transport->add_region({memory.data(), memory.size()});
      },
      communicator.deadline());
  impl_->theirs = share_region(rendezvous, *impl_->transport, impl_->mine.get(), options.remotes);
}

Puts::~Puts() = default;
Puts::Puts(Puts&&) noexcept = default;
Puts& Puts::operator=(Puts&&) noexcept = default;

bool Puts::put(int peer, std::size_t source_offset, std::size_t target_offset, std::size_t size_bytes,
               std::uint32_t immediate, std::uint64_t token) {
  Impl& impl = not_moved_from(impl_, "Puts");
  const auto at = static_cast<std::size_t>(peer);
  if (peer < 0 || at >= impl.theirs.size() || impl.theirs[at] == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                text("Puts: rank ", peer, " is no other rank of this group of ", impl_->theirs.size()));
  }
  const Put one{.source = impl_->mine.get(),
                .source_offset_bytes = source_offset,
                .target = impl_->theirs[at].get(),
                .target_offset_bytes = target_offset,
                .size_bytes = size_bytes,
                .immediate = immediate,
                .token = token};
  return impl_->transport->put(std::span(&one, 1)) == 1;
}

std::size_t Puts::poll(std::span<PutsEvent> events) {
  Impl& impl = not_moved_from(impl_, "Puts");
  impl.events.resize(events.size());
  const std::size_t count = impl.transport->poll(impl.events);
  for (std::size_t i = 0; i < count; ++i) {
    const PutEvent& event = impl.events[i];
    events[i] = {event.kind == PutEvent::Kind::arrived, event.peer, event.immediate, event.token};
  }
  return count;
}

std::string Puts::describe() const {
  const Impl& impl = not_moved_from(impl_, "Puts");
  return text(name_of(impl.transport->kind()), ": ", impl.transport->describe());
}

}  // namespace moelink
