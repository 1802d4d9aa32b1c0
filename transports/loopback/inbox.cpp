#include "transports/loopback/inbox.hpp"

#include <unordered_map>

namespace moelink::loopback {
namespace {

template <class T>
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }
  std::uint64_t publish(const std::shared_ptr<T>& object) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(objects_, [](const auto& entry) { return entry.second.expired(); });
    objects_.emplace(next_id_, object);
    return next_id_++;
  }
  std::shared_ptr<T> find(std::uint64_t id) {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(id);
    return found == objects_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<T>> objects_;
  std::uint64_t next_id_ = 1;
};

}  // namespace

std::size_t Inbox::take(std::span<PutEvent> events) {
  const std::scoped_lock lock(mutex_);
  std::size_t count = 0;
  while (count < events.size() && !arrivals_.empty()) {
    events[count] = arrivals_.front();
    --waiting_[static_cast<std::size_t>(events[count].peer)];
    arrivals_.pop_front();
    ++count;
  }
  return count;
}

void Inbox::close() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
}

bool Inbox::closed() {
  const std::scoped_lock lock(mutex_);
  return closed_;
}

std::uint64_t publish(const std::shared_ptr<Inbox>& inbox) { return Registry<Inbox>::instance().publish(inbox); }
std::uint64_t publish(const std::shared_ptr<SharedRegion>& region) {
  return Registry<SharedRegion>::instance().publish(region);
}
std::shared_ptr<Inbox> find_inbox(std::uint64_t id) { return Registry<Inbox>::instance().find(id); }
std::shared_ptr<SharedRegion> find_region(std::uint64_t id) { return Registry<SharedRegion>::instance().find(id); }

}  // namespace moelink::loopback
