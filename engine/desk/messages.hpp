// What ranks tell each other between two steps: requests go out from rank 0, tokens come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/requests/engine.hpp"
#include "engine/requests/request.hpp"

namespace moelink::engine {

/// A request's number, given by rank 0 and known on every rank.
using Ticket = std::uint64_t;

/// From rank 0: one rank, or all, gets a request or drops one.
struct Order {
  static constexpr std::int32_t kAllRanks = -1;

  enum class Kind : std::uint8_t { submit, cancel };
  Kind kind = Kind::submit;
  Ticket ticket = 0;
  std::int32_t rank = kAllRanks;
  Request request = {};  ///< of submit; its callbacks do not travel
  [[nodiscard]] bool is_for(int some_rank) const noexcept { return rank == kAllRanks || rank == some_rank; }
};

/// To rank 0: a request has a token, or has ended.
struct Event {
  enum class Kind : std::uint8_t { token, finish };
  Kind kind = Kind::token;
  Ticket ticket = 0;
  Token token = 0;     ///< of token
  Finish finish = {};  ///< of finish; of its error, the first 1000 bytes travel
};

/// How a rank is doing.
struct RankReport {
  bool has_work = false;
  EngineStats stats = {};
  EngineLoad load = {};
  std::int64_t num_pages = 0;
};

struct StepMessage {
  RankReport report = {};
  bool stop = false;  ///< from rank 0: there will be no further step
  std::vector<Order> orders = {};
  std::vector<Event> events = {};
};

[[nodiscard]] std::vector<std::byte> bytes_of(const StepMessage& message);
/// Throws ErrorCode::peer for bytes that are no message.
[[nodiscard]] StepMessage message_of(std::span<const std::byte> bytes);

/// Bytes that an order takes in a message.
[[nodiscard]] std::size_t size_of(const Order& order) noexcept;
/// Bytes that an event takes in a message.
[[nodiscard]] std::size_t size_of(const Event& event) noexcept;
/// Takes the first of `waiting` that fit into so many bytes together.
[[nodiscard]] std::vector<Event> take_events(std::vector<Event>& waiting, std::size_t most_bytes);
/// Bytes that the orders, or the events, of one message may take, so that it fits a call of Communicator::all_gather. A
/// message has one or the other.
inline constexpr std::size_t kMaxOrderBytes = (std::size_t{1} << 20) - 4096;

}  // namespace moelink::engine
