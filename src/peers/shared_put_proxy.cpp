#include "peers/shared_put_proxy.hpp"

#include <optional>
#include <utility>

#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "peers/communicator_rendezvous.hpp"
#include "transports/make_put.hpp"

namespace moelink {

std::shared_ptr<PutProxy> shared_put_proxy(const Communicator& communicator, std::vector<int> remotes,
                                           const std::string& transport) {
  Communicator::State& state = communicator.state();
  // Ranks construct the same objects in the same order: this is there on all of them or on none.
  Communicator::State::SharedPutProxy& shared = state.put_proxies[transport];
  if (shared.proxy != nullptr) return shared.proxy;
  std::optional<PutKind> kind;
  agree_over_ranks(
      *state.bootstrap, "puts: transport",
      [&] {
        if (!transport.empty()) kind = put_kind_of(transport, "ExchangeConfig::transport");
      },
      communicator.deadline());
  PutOptions options{.rank = communicator.rank(),
                     .num_ranks = communicator.size(),
                     .remotes = std::move(remotes),
                     .device = communicator.device(),
                     .deadline = communicator.deadline()};
  CommunicatorRendezvous rendezvous(communicator, "puts");
  std::unique_ptr<PutTransport> connected = connect_best_put(rendezvous, options, kind);
  const auto tell_group = [bootstrap = state.bootstrap.get(), rank = communicator.rank()](int peer,
                                                                                          const std::string& sentence) {
    bootstrap->abort({.code = ErrorCode::peer, .rank = peer >= 0 ? peer : rank, .sentence = sentence});
  };
  shared.proxy = std::make_shared<PutProxy>(std::move(connected),
                                            PutProxyOptions{.put = std::move(options), .on_failure = tell_group});
  shared.faults =
      state.bootstrap->faults().subscribe([proxy = shared.proxy.get()](const GroupFault&) { proxy->abandon(); });
  return shared.proxy;
}

}  // namespace moelink
