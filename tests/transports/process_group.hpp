// Ranks as processes: a rendezvous in shared memory that children inherit, by fork or by exec.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "transports/rendezvous.hpp"

namespace moelink::test {

/// The page where the processes meet. It lives in a memory file whose descriptor survives exec.
class ProcessMeeting {
 public:
  explicit ProcessMeeting(int size, std::chrono::milliseconds deadline = std::chrono::seconds(20));
  /// Of an inherited descriptor.
  explicit ProcessMeeting(UniqueFd inherited);
  ~ProcessMeeting();
  ProcessMeeting(const ProcessMeeting&) = delete;
  ProcessMeeting& operator=(const ProcessMeeting&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] int size() const noexcept;
  /// Throws Error after the deadline.
  void barrier();
  void all_gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all);

 private:
  struct Page;
  void map();
  UniqueFd fd_;
  Page* page_ = nullptr;
};

class ProcessRendezvous final : public Rendezvous {
 public:
  ProcessRendezvous(ProcessMeeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return meeting_.size(); }
  [[nodiscard]] int node_of(int /*rank*/) const override { return 0; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    meeting_.all_gather(rank_, mine, all);
  }
  void barrier() override { meeting_.barrier(); }
  void give_up(std::string_view /*words*/) noexcept override {}

 private:
  ProcessMeeting& meeting_;
  int rank_;
};

/// Waits for children and returns how each ended: "" for exit code 0, else "exit 3" or "signal 9". Kills them after the
/// limit.
[[nodiscard]] std::vector<std::string> wait_for(const std::vector<pid_t>& children, std::chrono::seconds limit);

/// Starts tests/transports/peer_process.cpp: `moelink_peer_process <meeting fd> <rank> <kind> <device>
/// <scenario> <socket directory>`.
[[nodiscard]] pid_t start_peer(const ProcessMeeting& meeting, int rank, const std::string& kind, int device_ordinal,
                               const std::string& scenario, const std::string& socket_directory);

}  // namespace moelink::test
