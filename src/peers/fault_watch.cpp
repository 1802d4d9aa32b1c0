#include "peers/fault_watch.hpp"

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fault.hpp"
#include "runtime/thread.hpp"

namespace moelink {
namespace {

constexpr std::chrono::milliseconds kPeriod{20};
/// Looks at a fault that a peer has reported, before it is told: the peer itself says more, on its own way.
constexpr int kLooksForPeer = 10;

}  // namespace

class FaultWatch::Thread {
 public:
  Thread() : thread_(start_thread("moelink-faults", [this] { run(); })) {}
  ~Thread() {
    {
      const std::scoped_lock lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void add(const FaultWatch* owner, const FaultRecord& record, std::function<void()> tell) {
    const std::scoped_lock lock(mutex_);
    watched_.push_back({.owner = owner, .record = &record, .tell = std::move(tell)});
  }
  void remove(const FaultWatch* owner) {
    const std::scoped_lock lock(mutex_);
    watched_.remove_if([&](const Watched& one) { return one.owner == owner; });
  }

  /// That of this process; the last who watches ends it.
  static std::shared_ptr<Thread> get() {
    static std::mutex mutex;
    static std::weak_ptr<Thread> current;
    const std::scoped_lock lock(mutex);
    std::shared_ptr<Thread> thread = current.lock();
    if (thread == nullptr) current = thread = std::make_shared<Thread>();
    return thread;
  }

 private:
  struct Watched {
    const FaultWatch* owner = nullptr;
    const FaultRecord* record = nullptr;
    std::function<void()> tell{};
    int num_looks = 0;  // that have seen the fault
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
      for (Watched& one : watched_) look_at(one);
      // On the system clock, as ThreadSanitizer of g++ 12 does not know the other's system call.
      changed_.wait_until(lock, std::chrono::system_clock::now() + kPeriod, [&] { return is_ending_; });
    }
  }

  static void look_at(Watched& one) {
    if (one.num_looks > kLooksForPeer) return;
    const auto fault = read_fault(*one.record);
    if (!fault || fault->fault.kind == FaultKind::aborted) return;
    const int enough = fault->fault.kind == FaultKind::peer_fault ? kLooksForPeer : 1;
    if (++one.num_looks < enough) return;
    one.num_looks = kLooksForPeer + 1;
    one.tell();
  }

  std::mutex mutex_;  // held while records are read and told of
  std::condition_variable changed_;
  std::list<Watched> watched_;
  bool is_ending_ = false;
  std::thread thread_;
};

FaultWatch::FaultWatch(const FaultRecord& record, std::function<void()> tell) : thread_(Thread::get()) {
  thread_->add(this, record, std::move(tell));
}

FaultWatch::~FaultWatch() { thread_->remove(this); }

}  // namespace moelink
