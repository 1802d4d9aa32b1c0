#include "comm/fault_board.hpp"

#include <utility>

namespace moelink {

FaultBoard::FaultBoard() : listeners_(std::make_shared<Subscription::Listeners>()) {}

GroupFault FaultBoard::raise(GroupFault fault) noexcept {
  const std::scoped_lock lock(listeners_->mutex);
  if (!listeners_->fault) {
    listeners_->fault = std::move(fault);
    raised_.store(true, std::memory_order_release);
    for (const auto& [key, listener] : listeners_->by_key) {
      listener(*listeners_->fault);
    }
  }
  return *listeners_->fault;
}

std::optional<GroupFault> FaultBoard::fault() const {
  if (!raised()) {
    return std::nullopt;
  }
  const std::scoped_lock lock(listeners_->mutex);
  return listeners_->fault;
}

void FaultBoard::check() const {
  if (const auto raised = fault()) {
    throw Error(raised->code, raised->sentence);
  }
}

FaultBoard::Subscription FaultBoard::subscribe(Listener listener) {
  const std::scoped_lock lock(listeners_->mutex);
  if (listeners_->fault) {
    listener(*listeners_->fault);
  }
  const int key = listeners_->next_key++;
  listeners_->by_key.emplace(key, std::move(listener));
  return {listeners_, key};
}

FaultBoard::Subscription& FaultBoard::Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    end();
    listeners_ = std::move(other.listeners_);
    key_ = other.key_;
  }
  return *this;
}

void FaultBoard::Subscription::end() noexcept {
  if (listeners_ != nullptr) {
    const std::scoped_lock lock(listeners_->mutex);
    listeners_->by_key.erase(key_);
  }
  listeners_.reset();
}

}  // namespace moelink
