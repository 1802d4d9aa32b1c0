#include "transports/multicast/map.hpp"

#if MOELINK_HAVE_CUDA

#include <optional>
#include <utility>
#include <vector>

#include "transports/descriptors/exchange.hpp"
#include "transports/gather.hpp"
#include "transports/multicast/binding.hpp"
#include "transports/together.hpp"

namespace moelink {
namespace {

/// What the first rank of a node, who creates the object, tells the others; and where these take its descriptor.
struct Invitation {
  std::array<std::byte, MemoryTicket::kBytes> ticket{};
  DescriptorAddress address;
};

/// One rank's way through the steps. Between two of them all ranks meet.
class MulticastJoin {
 public:
  MulticastJoin(const MulticastPart& part, const PeerGroupOptions& options) : part_(part), options_(options) {
    const Window& window = part.state.window();
    for (int rank = 0; rank < window.num_ranks; ++rank) {
      if (rank == window.rank || part.state.is_peer(rank)) {
        ranks_.push_back(rank);
      }
    }
  }

  void create(Invitation& invitation) {
    if (is_creator()) {
      object_ = create_multicast(context(), static_cast<int>(ranks_.size()), size_bytes(), form().type);
      ticket_ = form().export_handle(*context(), object_.get(), size_bytes());
      invitation.ticket = ticket_.bytes;
    }
    if (form().has_descriptors) {
      exchange_.emplace(part_.state.window().rank, socket_parent(options_.socket_directory), options_.deadline);
      invitation.address = exchange_->address();
    }
  }

  void join(std::span<const Invitation> invitations) {
    UniqueFd descriptor = pass_descriptor(invitations);
    if (!is_creator()) {
      const Invitation& creators = invitations[static_cast<std::size_t>(ranks_.front())];
      object_ = form().import_handle(context(), {creators.ticket, std::move(descriptor)}).handle;
    }
    binding_ = std::make_shared<MulticastBinding>(context(), std::move(object_), size_bytes());
    binding_->join();
  }

  void bind() { binding_->bind(static_cast<const VirtualMemory&>(part_.state.local())); }
  void map() { mapping_ = binding_->map(); }
  void keep() { part_.state.set_multicast(binding_, mapping_, mapping_->data()); }

 private:
  [[nodiscard]] bool is_creator() const { return ranks_.front() == part_.state.window().rank; }
  [[nodiscard]] const std::shared_ptr<CudaContext>& context() const { return part_.transport.context(); }
  [[nodiscard]] const HandleForm& form() const { return part_.transport.form(); }
  [[nodiscard]] std::size_t size_bytes() const { return part_.state.local().size_bytes(); }

  UniqueFd pass_descriptor(std::span<const Invitation> invitations) {
    if (!exchange_.has_value()) {
      return {};
    }
    const auto peer = [&](int rank) {
      return DescriptorExchange::Peer{rank, invitations[static_cast<std::size_t>(rank)].address};
    };
    std::vector<DescriptorExchange::Peer> others;
    for (const int rank : std::span(ranks_).subspan(1)) {
      others.push_back(peer(rank));
    }
    if (is_creator()) {
      (void)exchange_->run(ticket_.descriptor.get(), others, {});
      return {};
    }
    const DescriptorExchange::Peer creator = peer(ranks_.front());
    return std::move(exchange_->run(-1, {}, {&creator, 1}).front());
  }

  const MulticastPart& part_;
  const PeerGroupOptions& options_;
  std::vector<int> ranks_;  // of the node, this one included
  CudaHandle object_;
  MemoryTicket ticket_;
  std::optional<DescriptorExchange> exchange_;
  std::shared_ptr<MulticastBinding> binding_;
  std::shared_ptr<CudaMapping> mapping_;
};

}  // namespace

std::string map_multicast(Rendezvous& rendezvous, const MulticastPart* part, const PeerGroupOptions& options) {
  std::optional<MulticastJoin> mine;
  if (part != nullptr) {
    mine.emplace(*part, options);
  }
  Invitation invitation;
  std::vector<Invitation> all;
  std::string reason;
  const auto take = [&](std::string_view what, const std::function<void(MulticastJoin&)>& step) {
    if (reason.empty()) {
      reason = try_together(rendezvous, what, [&] {
        if (mine.has_value()) {
          step(*mine);
        }
      });
    }
  };
  take("creating a multicast object", [&](MulticastJoin& join) { join.create(invitation); });
  if (reason.empty()) {
    all = gather<Invitation>(rendezvous, std::span(&invitation, 1));
  }
  take("joining a multicast object", [&](MulticastJoin& join) { join.join(all); });
  take("binding memory to a multicast object", [](MulticastJoin& join) { join.bind(); });
  take("mapping a multicast object", [](MulticastJoin& join) { join.map(); });
  if (reason.empty() && mine.has_value()) {
    mine->keep();
  }
  return reason;
}

}  // namespace moelink

#endif
