// The part of a server that every rank has: its engine, stepping together with the others.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "engine/desk/desk.hpp"
#include "engine/desk/messages.hpp"
#include "engine/requests/engine.hpp"
#include "moelink/communicator.hpp"

namespace moelink::engine {

/// Takes requests that the desk on rank 0 hands out, and tells it what comes of them. Between any two steps, while the
/// device works on the first, ranks exchange one message each; where nobody has work they wait for rank 0's.
class Worker {
 public:
  /// `desk`: on rank 0, else null.
  Worker(const Communicator& communicator, Engine& engine, Parallelism parallelism, Desk* desk);

  /// Works until Desk::stop(). Collective. Throws the failure of the model or of another rank, after all requests have
  /// been told of it.
  void run();

 private:
  /// Exchanges messages; whether any rank has work for a step.
  [[nodiscard]] bool exchange();
  void obey(Order order);
  void submit(Order order);
  /// Rank 0: at once; else with the next message.
  void hand_out(Event event);
  [[nodiscard]] RankReport report() const;

  Communicator communicator_;
  Engine& engine_;
  Desk* desk_;
  bool speaks_;  ///< what comes of requests is told by this rank
  bool all_ranks_report_;
  bool stop_ = false;
  std::map<Ticket, RequestId> requests_;
  std::vector<Event> events_;  ///< for the next message
};

}  // namespace moelink::engine
