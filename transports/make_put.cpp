#include "transports/make_put.hpp"

#include <algorithm>
#include <array>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "transports/gather.hpp"
#include "transports/loopback/put.hpp"
#include "transports/process_token.hpp"
#include "transports/put_group.hpp"
#include "transports/together.hpp"
#include "transports/ucx/put.hpp"
#include "transports/verbs/put.hpp"

namespace moelink {
namespace {

std::optional<PutKind> named_kind(std::optional<PutKind> only) {
  const std::string& name = Environment::get().put;
  return only || name.empty() ? only : put_kind_of(name, "MOELINK_PUT");
}

bool are_in_one_process(Rendezvous& rendezvous) {
  const std::uint64_t mine = process_token();
  const auto tokens = gather<std::uint64_t>(rendezvous, std::span(&mine, 1));
  return std::ranges::all_of(tokens, [&](std::uint64_t token) { return token == mine; });
}

/// What one kind came to: the transport if every rank made it, else why not.
std::string try_kind(Rendezvous& rendezvous, PutKind kind, const PutOptions& options,
                     std::unique_ptr<PutTransport>& transport) {
  const std::string reason =
      try_together(rendezvous, text("opening ", name_of(kind)), [&] { transport = make_put(kind, options); });
  if (!reason.empty()) transport.reset();
  return reason;
}

}  // namespace

PutKind put_kind_of(std::string_view name, std::string_view from) {
  for (int i = 0; i < kNumPutKinds; ++i) {
    if (name == name_of(static_cast<PutKind>(i))) return static_cast<PutKind>(i);
  }
  throw Error(ErrorCode::invalid_argument,
              text(from, "=", name, " is no transport of puts; expected loopback, verbs or ucx"));
}

std::unique_ptr<PutTransport> make_put(PutKind kind, const PutOptions& options) {
  switch (kind) {
    case PutKind::loopback:
      return make_loopback_put(options);
    case PutKind::verbs:
      return make_verbs_put(options, VerbsSettings::from(Environment::get()));
    case PutKind::ucx:
      return make_ucx_put(options);
  }
  throw Error(ErrorCode::invalid_argument, text("there is no transport of puts ", static_cast<int>(kind)));
}

std::unique_ptr<PutTransport> connect_best_put(Rendezvous& rendezvous, const PutOptions& options,
                                               std::optional<PutKind> only) {
  // Ranks must not try different kinds: their environments are compared first.
  std::optional<PutKind> wanted;
  together(rendezvous, "choosing a transport of puts", [&] { wanted = named_kind(only); });
  const int mine = wanted ? static_cast<int>(*wanted) : -1;
  const auto all = gather<int>(rendezvous, std::span(&mine, 1));
  if (const auto other = std::ranges::find_if(all, [&](int kind) { return kind != mine; }); other != all.end()) {
    throw Error(ErrorCode::mismatch, text("rank ", other - all.begin(), " wants another transport of puts than rank ",
                                          options.rank, "; set MOELINK_PUT to the same everywhere"));
  }
  std::vector<PutKind> kinds = {PutKind::verbs, PutKind::ucx};
  if (are_in_one_process(rendezvous)) kinds.insert(kinds.begin(), PutKind::loopback);
  if (wanted) kinds = {*wanted};
  std::string reasons;
  for (const PutKind kind : kinds) {
    std::unique_ptr<PutTransport> transport;
    const std::string reason = try_kind(rendezvous, kind, options, transport);
    if (transport != nullptr) {
      connect_puts(rendezvous, *transport);
      return transport;
    }
    reasons += text("\n  ", name_of(kind), ": ", reason);
  }
  throw Error(ErrorCode::unsupported, text("no transport can put between these ranks:", reasons));
}

}  // namespace moelink
