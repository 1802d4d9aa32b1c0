// The soft NICs of this process: one thread that moves bytes for all of their queue pairs, and plays the mischief.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "soft_nic/objects.hpp"
#include "soft_nic/wire.hpp"

namespace moelink::soft_nic {

class Fabric {
 public:
  [[nodiscard]] static Fabric& instance();

  /// Held by every call into the NIC, and by its thread while it touches anything.
  std::mutex mutex;
  std::map<std::uint32_t, Pair*> pairs;      // by number
  std::map<std::uint32_t, Region*> regions;  // by key

  /// Starts the thread with the first user. Mutex not held.
  void open();
  /// The number under which other NICs reach this process. Mutex held; between open() and close().
  [[nodiscard]] std::uint32_t nic() const noexcept { return nic_; }
  /// Ends the thread with the last user. Mutex not held.
  void close();
  /// Something was posted.
  void wake();
  /// A number that no pair and no region of this process has had. Mutex held.
  std::uint32_t next_number();

  /// Breaks the connection: `first` (or, if null, nothing) fails with `status`, all else is flushed. Mutex held.
  void break_pair(Pair& pair, const Write* first, ibv_wc_status status);
  void raise_event(Context& context, ibv_event_type type, Pair* pair);
  void complete(Queue& queue, const ibv_wc& completion);

 private:
  /// A write that has come in, while it lands.
  struct Landing {
    std::shared_ptr<Wire> from;
    ReceivedFrame received;
    std::vector<std::size_t> pieces{};  // still to be copied, by start; the last one goes next
    std::size_t piece_bytes = 0;
    Clock::time_point due{};
  };
  struct LateCompletion {
    std::uint32_t pair = 0;
    std::uint64_t number = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    Clock::time_point due{};
  };

  void run(const std::stop_token& stop);
  void wait_for_work();
  void accept_wires();
  void launch_writes();
  bool launch_one(Pair& pair);
  void launch(Pair& pair, const Write& write);
  void read_wires();
  void take(const std::shared_ptr<Wire>& wire, ReceivedFrame received);
  void land_writes();
  bool land_step(Landing& landing);
  bool refuse_if_forbidden(const Landing& landing, Pair& pair);
  void answer(const Landing& landing, FrameKind kind);
  void finish_writes();
  void drop_broken_wires();

  std::mutex life_mutex_;      // of open() and close(); taken before `mutex`
  bool has_progress_ = false;  // since the thread last waited
  std::uint32_t nic_ = 0;
  pid_t owner_ = 0;
  int users_ = 0;
  std::uint32_t last_number_ = 16;
  std::uint64_t last_write_ = 0;
  UniqueFd listener_;
  UniqueFd wake_;
  std::map<std::uint32_t, std::shared_ptr<Wire>> outgoing_;  // by NIC
  std::vector<std::shared_ptr<Wire>> accepted_;
  std::vector<Landing> landings_;
  std::vector<LateCompletion> late_;
  std::jthread thread_;
};

}  // namespace moelink::soft_nic
