#include <algorithm>
#include <array>
#include <utility>

#include "base/hmac.hpp"
#include "base/text.hpp"
#include "comm/join.hpp"
#include "comm/meet.hpp"
#include "comm/thread_bootstrap.hpp"

namespace moelink {
namespace {

constexpr std::size_t kCardBytes = 2048;
constexpr std::size_t kMaxAddresses = 16;
constexpr std::size_t kMaxObstacleBytes = 1024;

/// What a rank publishes: who it is; rank 0 also where it listens, or why it does not.
struct Card {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::string obstacle;
  std::uint64_t job = 0;
  std::string secret;
  std::vector<std::pair<std::string, int>> addresses;  // host, port
};

std::array<std::byte, kCardBytes> encode(const Card& card) {
  ByteWriter out;
  out.u32(card.rank);
  out.u32(card.size);
  out.string(card.obstacle);
  out.u64(card.job);
  out.string(card.secret);
  out.u32(static_cast<std::uint32_t>(card.addresses.size()));
  for (const auto& [host, port] : card.addresses) {
    out.string(host);
    out.u32(static_cast<std::uint32_t>(port));
  }
  std::array<std::byte, kCardBytes> padded{};
  std::ranges::copy(std::span(out.bytes()).first(std::min(out.bytes().size(), kCardBytes)), padded.begin());
  return padded;
}

Card decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Card card;
  card.rank = in.u32();
  card.size = in.u32();
  card.obstacle = in.string();
  card.job = in.u64();
  card.secret = in.string();
  for (std::uint32_t left = std::min<std::uint32_t>(in.u32(), kMaxAddresses); left > 0; --left) {
    std::string host = in.string();
    card.addresses.emplace_back(std::move(host), static_cast<int>(in.u32()));
  }
  return card;
}

/// Addresses of this machine at which others can find a listener of all of them; loopback last, since on other machines
/// it means those.
std::vector<SocketAddress> addresses_for_others() {
  auto own = interface_addresses();
  std::erase_if(own, [](const SocketAddress& address) { return address.is_link_local(); });
  std::stable_partition(own.begin(), own.end(), [](const SocketAddress& address) { return !address.is_loopback(); });
  return own;
}

std::vector<UniqueFd> listen_and_fill(Card& card, const Environment& environment) {
  std::vector<UniqueFd> listeners;
  std::vector<SocketAddress> addresses;
  if (environment.socket_interface.empty()) {
    listeners.push_back(listen_everywhere(environment.port));
    const int port = local_address(listeners.front().get()).port();
    for (const SocketAddress& own : addresses_for_others()) {
      addresses.push_back(own.with_port(port));
    }
  } else {
    listeners = listen_on_interface(environment.socket_interface, environment.port);
    for (const UniqueFd& listener : listeners) {
      addresses.push_back(local_address(listener.get()));
    }
  }
  addresses.resize(std::min(addresses.size(), kMaxAddresses));
  for (const SocketAddress& address : addresses) {
    card.addresses.emplace_back(address.host(), address.port());
  }
  std::array<std::byte, 32> secret{};
  fill_random(secret);
  card.secret.assign(reinterpret_cast<const char*>(secret.data()), secret.size());
  fill_random(std::as_writable_bytes(std::span(&card.job, 1)));
  return listeners;
}

/// Every rank's card, checked to be where it belongs.
std::vector<Card> exchange_cards(const Card& mine, const AllGatherFunction& all_gather) {
  const auto sent = encode(mine);
  std::vector<std::byte> all(static_cast<std::size_t>(mine.size) * kCardBytes);
  all_gather(sent, all);
  std::vector<Card> cards;
  for (std::uint32_t r = 0; r < mine.size; ++r) {
    Card card = decode(std::span(all).subspan(r * kCardBytes, kCardBytes));
    if (card.rank != r || card.size != mine.size) {
      throw Error(ErrorCode::mismatch,
                  text("the all-gather function gave, in the place of rank ", r, " of ", mine.size, ", what rank ",
                       card.rank, " of ", card.size, " sent; rank and size must be the function's own"));
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

}  // namespace

std::unique_ptr<Bootstrap> meet_by_all_gather(int rank, int size, const AllGatherFunction& all_gather,
                                              const Environment& environment, std::chrono::milliseconds patience) {
  constexpr int kMostRanks = 65536;  // as from a launcher
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size || !all_gather) {
    throw Error(ErrorCode::invalid_argument,
                text("rank ", rank, " of ", size, all_gather ? "" : ", no function",
                     "; pass 0 <= rank < size <= ", kMostRanks, " and an all-gather function"));
  }
  if (size == 1) {
    return std::move(ThreadBootstrap::make_group(1).front());
  }
  Card mine;
  mine.rank = static_cast<std::uint32_t>(rank);
  mine.size = static_cast<std::uint32_t>(size);
  std::vector<UniqueFd> listeners;
  if (rank == 0) {
    try {
      listeners = listen_and_fill(mine, environment);
    } catch (const Error& error) {
      mine.obstacle = std::string(error.what()).substr(0, kMaxObstacleBytes);
    }
  }
  const Card host = exchange_cards(mine, all_gather).front();
  if (!host.obstacle.empty()) {
    throw Error(ErrorCode::system, text("rank 0 cannot listen for the other ranks: ", host.obstacle));
  }
  const Joiner joiner{rank, {size, host.job, host.secret}, patience, true};
  std::string where;
  for (const auto& [address, port] : host.addresses) {
    where += text(where.empty() ? "" : " or ", address, " port ", port);
  }
  if (rank == 0) {
    return open_group(joiner, std::move(listeners), where);
  }
  const auto find_paths = [&] {
    std::vector<Path> paths;
    for (const auto& [address, port] : host.addresses) {
      paths.push_back({resolve(address, port).front()});
    }
    return paths;
  };
  return join_group(joiner, find_paths, where);
}

}  // namespace moelink
