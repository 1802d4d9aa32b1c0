#include "engine/desk/desk.hpp"

#include <algorithm>
#include <utility>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {

OpenRequest::~OpenRequest() {
  desk_->leave(ticket_, FinishReason::cancelled);
  desk_->let_go();
}

void OpenRequest::leave(FinishReason reason) { desk_->leave(ticket_, reason); }

Desk::Desk(const Engine& engine, const DeskOptions& options)
    : engine_(engine), options_(options), num_active_(static_cast<std::size_t>(options.num_ranks), 0) {}

void Desk::expect_room() {
  const std::lock_guard lock(mutex_);
  refuse_if_full();
}

void Desk::refuse_if_full() {
  if (closed_) {
    throw NotNow(NotNow::Reason::closed, *closed_);
  }
  const std::int64_t most = options_.num_ranks * options_.max_running + options_.max_waiting;
  if (static_cast<std::int64_t>(active_.size()) >= most) {
    metrics_.count_refused();
    throw NotNow(NotNow::Reason::too_many,
                 text(active_.size(), " requests run or wait, and no more are taken: try again later"));
  }
}

std::unique_ptr<OpenRequest> Desk::submit(Request request) {
  engine_.check(request);
  Order order{.kind = Order::Kind::submit, .request = std::move(request)};
  if (options_.messages_have_a_bound && size_of(order) > kMaxOrderBytes) {
    throw Error(ErrorCode::capacity,
                text("request: a prompt of ", order.request.prompt.size(),
                     " tokens is too long to be handed to another rank, which takes ", kMaxOrderBytes, " bytes"));
  }
  auto reply = std::make_shared<Reply>();
  const std::lock_guard lock(mutex_);
  refuse_if_full();
  metrics_.count_prompt(static_cast<std::int64_t>(order.request.prompt.size()));
  const std::int32_t rank = idlest_rank();
  order.ticket = ++last_ticket_;
  order.rank = options_.num_ranks == 1 ? Order::kAllRanks : rank;
  Active& active = active_[order.ticket];
  active.rank = rank;
  active.reply = reply;
  active.last = Clock::now();
  ++num_active_[static_cast<std::size_t>(rank)];
  ++num_open_;
  orders_.push_back(std::move(order));
  orders_arrived_.notify_one();
  return std::make_unique<OpenRequest>(*this, last_ticket_, std::move(reply));
}

std::int32_t Desk::idlest_rank() const {
  return static_cast<std::int32_t>(std::min_element(num_active_.begin(), num_active_.end()) - num_active_.begin());
}

void Desk::close(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!closed_) {
    closed_ = why;
  }
}

std::optional<std::string> Desk::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool Desk::wait_until_empty(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return let_go_.wait_for(lock, longest, [&] { return num_open_ == 0; });
}

void Desk::stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  while (!active_.empty()) {
    finish(active_.begin(), {.reason = FinishReason::cancelled, .error = closed_.value_or("the server has ended")});
  }
  orders_.clear();
  orders_arrived_.notify_one();
}

void Desk::leave(Ticket ticket, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  const auto found = active_.find(ticket);
  if (found == active_.end() || found->second.left) {
    return;
  }
  found->second.left = reason;
  if (found->second.sent) {
    const std::int32_t rank = options_.num_ranks == 1 ? Order::kAllRanks : found->second.rank;
    orders_.push_back({.kind = Order::Kind::cancel, .ticket = ticket, .rank = rank});
    orders_arrived_.notify_one();
    return;
  }
  orders_.erase(
      std::find_if(orders_.begin(), orders_.end(), [&](const Order& order) { return order.ticket == ticket; }));
  finish(found, {});
}

void Desk::let_go() {
  const std::lock_guard lock(mutex_);
  --num_open_;
  let_go_.notify_all();
}

void Desk::finish(std::map<Ticket, Active>::iterator request, Finish finish) {
  Active& active = request->second;
  metrics_.count_finished(active.left.value_or(finish.reason), finish.num_reused_tokens);
  --num_active_[static_cast<std::size_t>(active.rank)];
  active.reply->finish(std::move(finish));
  active_.erase(request);
}

void Desk::wait_for_orders(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  orders_arrived_.wait_for(lock, longest, [&] { return stop_ || !orders_.empty(); });
}

void Desk::take_orders(StepMessage& message) {
  const std::lock_guard lock(mutex_);
  message.stop = stop_;
  std::size_t num_bytes = 0;
  while (!orders_.empty()) {
    num_bytes += size_of(orders_.front());
    if (options_.messages_have_a_bound && num_bytes > kMaxOrderBytes) {
      break;  // the next message has it
    }
    if (const auto found = active_.find(orders_.front().ticket); found != active_.end()) {
      found->second.sent = true;
    }
    message.orders.push_back(std::move(orders_.front()));
    orders_.pop_front();
  }
}

void Desk::deliver(Event event) {
  const std::lock_guard lock(mutex_);
  const auto found = active_.find(event.ticket);
  if (found == active_.end()) {
    return;
  }
  Active& active = found->second;
  if (event.kind == Event::Kind::finish) {
    finish(found, std::move(event.finish));
    return;
  }
  if (active.left) {
    return;  // it was under way when somebody left
  }
  const Clock::time_point now = Clock::now();
  metrics_.count_token(active.num_tokens == 0, std::chrono::duration<double>(now - active.last).count());
  active.last = now;
  ++active.num_tokens;
  active.reply->push(event.token);
}

void Desk::report(const std::vector<RankReport>& ranks) {
  const std::lock_guard lock(mutex_);
  const auto waiting =
      std::count_if(active_.begin(), active_.end(), [](const auto& entry) { return !entry.second.sent; });
  metrics_.report(ranks, waiting);
}

void Desk::fail(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = why;
  while (!active_.empty()) {
    finish(active_.begin(), {.reason = FinishReason::failed, .error = why});
  }
  orders_.clear();
}

}  // namespace moelink::engine
