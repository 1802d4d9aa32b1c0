#include "engine/desk/worker.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace moelink::engine {

Worker::Worker(const Communicator& communicator, Engine& engine, Parallelism parallelism, Desk* desk)
    : communicator_(communicator),
      engine_(engine),
      desk_(desk),
      speaks_(parallelism == Parallelism::data || desk != nullptr),
      all_ranks_report_(parallelism == Parallelism::data) {}

void Worker::run() {
  // Others wait for rank 0's message meanwhile: not as long as they would wait for a rank that is lost.
  const auto heartbeat = std::min<std::chrono::milliseconds>(std::chrono::seconds(1), communicator_.deadline() / 4);
  try {
    bool anyone_has_work = exchange();
    while (!stop_) {
      if (anyone_has_work) {
        engine_.step_with_others([&] { anyone_has_work = exchange(); });
        continue;
      }
      if (desk_ != nullptr) {
        desk_->wait_for_orders(heartbeat);
      }
      anyone_has_work = exchange();
    }
  } catch (const std::exception& error) {
    if (desk_ != nullptr) {
      desk_->fail(error.what());
    }
    throw;
  }
}

bool Worker::exchange() {
  StepMessage mine;
  // Either may fill a message: never both in one. Whoever has the desk has handed its events out at once.
  if (desk_ != nullptr) {
    desk_->take_orders(mine);
  } else {
    mine.events = take_events(events_, kMaxOrderBytes);
  }
  mine.report = report();
  std::vector<RankReport> reports;
  bool anyone_has_work = false;
  int rank = 0;
  for (const auto& bytes : communicator_.all_gather(bytes_of(mine))) {
    StepMessage message = message_of(bytes);
    stop_ = stop_ || message.stop;
    anyone_has_work = anyone_has_work || message.report.has_work || !message.orders.empty();
    for (Order& order : message.orders) {
      obey(std::move(order));
    }
    if (desk_ != nullptr) {
      std::for_each(message.events.begin(), message.events.end(),
                    [&](Event& event) { desk_->deliver(std::move(event)); });
    }
    if (all_ranks_report_ || rank == 0) {
      reports.push_back(message.report);
    }
    ++rank;
  }
  if (desk_ != nullptr) {
    desk_->report(reports);
  }
  return anyone_has_work;
}

RankReport Worker::report() const {
  // What could not be told yet is work: there will be another message. A request has at most its tokens and an end in
  // events_.
  return {.has_work = engine_.has_work() || !events_.empty(),
          .stats = engine_.stats(),
          .load = engine_.load(),
          .num_pages = engine_.model().limits().num_pages};
}

void Worker::obey(Order order) {
  if (!order.is_for(communicator_.rank())) {
    return;
  }
  if (order.kind == Order::Kind::submit) {
    submit(std::move(order));
  } else if (const auto found = requests_.find(order.ticket); found != requests_.end()) {
    engine_.cancel(found->second);
  }
}

void Worker::submit(Order order) {
  const Ticket ticket = order.ticket;
  // No callback says that nobody listens: with Parallelism::tensor ranks would differ. Cancelling is an order.
  order.request.on_token = [this, ticket](Token token) {
    hand_out({.kind = Event::Kind::token, .ticket = ticket, .token = token});
    return true;
  };
  order.request.on_finish = [this, ticket](const Finish& finish) {
    requests_.erase(ticket);
    hand_out({.kind = Event::Kind::finish, .ticket = ticket, .finish = finish});
  };
  try {
    requests_[ticket] = engine_.submit(std::move(order.request));
  } catch (const std::exception& error) {  // the desk had it checked: this rank must be another than rank 0
    requests_.erase(ticket);
    hand_out({.kind = Event::Kind::finish,
              .ticket = ticket,
              .finish = {.reason = FinishReason::failed, .error = error.what()}});
  }
}

void Worker::hand_out(Event event) {
  if (desk_ != nullptr) {
    desk_->deliver(std::move(event));
  } else if (speaks_) {
    events_.push_back(std::move(event));
  }
}

}  // namespace moelink::engine
