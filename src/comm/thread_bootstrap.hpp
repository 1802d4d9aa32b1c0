// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap.hpp"

namespace moelink {

class ThreadGroup;

/// The thread that makes a group of two or more may not make its collective calls: a loop over ranks in it would wait
/// for ranks that come later in the same loop. Such a call ends the group with ErrorCode::out_of_order at once;
/// on_every_rank() is the way.
class ThreadBootstrap final : public Bootstrap {
 public:
  /// The members of one new group, in rank order.
  [[nodiscard]] static std::vector<std::unique_ptr<ThreadBootstrap>> make_group(int size);
  ~ThreadBootstrap() override;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override;
  [[nodiscard]] std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine,
                                              std::chrono::milliseconds deadline) override;
  void abort(GroupFault fault) noexcept override;
  [[nodiscard]] FaultBoard& faults() noexcept override;

  /// This rank will make no collective call until attend(): whoever needs it gets ErrorCode::peer with `why` at once. A
  /// group whose ranks all stay away for the same reason is not harmed.
  void stay_away(const std::string& why) noexcept;
  void attend() noexcept;

 private:
  ThreadBootstrap(int rank, std::shared_ptr<ThreadGroup> group);
  int rank_;
  std::shared_ptr<ThreadGroup> group_;
};

}  // namespace moelink
