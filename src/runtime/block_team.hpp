// Threads that run the blocks of one launch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "moelink/device/exec/host_exec.hpp"
#include "runtime/signal.hpp"

namespace moelink {

/// One owner thread calls run() and takes part; num_threads - 1 others help it and sleep in between.
class BlockTeam {
 public:
  /// At least one thread, the owner.
  explicit BlockTeam(int num_threads);
  ~BlockTeam();
  BlockTeam(const BlockTeam&) = delete;
  BlockTeam& operator=(const BlockTeam&) = delete;

  [[nodiscard]] int num_threads() const noexcept { return static_cast<int>(members_.size()); }

  /// Throws invalid_argument unless grid >= 1 and scratch_bytes is not absurd.
  static void check_shape(int grid, std::size_t scratch_bytes);

  /// Calls `block(const HostExec&)` for every block and returns when all are done; lowest blocks start first. Blocks of
  /// a grid up to num_threads() all run at the same time. Throws the first exception of a block, after the last block.
  template <class Block>
  void run(int grid, std::size_t scratch_bytes, const Block& block) {
    run_job({.block = [](const void* stored, const HostExec& ex) { (*static_cast<const Block*>(stored))(ex); },
             .stored = &block,
             .grid = grid},
            scratch_bytes);
  }

 private:
  struct Job {
    void (*block)(const void* stored, const HostExec& ex) = nullptr;
    const void* stored = nullptr;
    int grid = 0;
    std::uint32_t number = 0;  ///< of the launch; wraps
  };
  /// What members read before they have a block.
  struct alignas(8) Launch {
    std::uint32_t number = 0;
    int participants = 0;
  };
  struct FreeDeleter {
    void operator()(void* memory) const noexcept;
  };
  struct alignas(128) Member {
    Signal wake;
    std::unique_ptr<void, FreeDeleter> scratch;
    std::thread thread;  // none for member 0, the owner
  };

  void run_job(const Job& job, std::size_t scratch_bytes);
  void reserve_scratch(std::size_t scratch_bytes);
  std::uint32_t wake_children(int member) noexcept;  // returns for which launch
  void work_as(int member) noexcept;
  void take_blocks(int member, std::uint32_t woken_for) noexcept;
  [[nodiscard]] bool take_ticket(int& num_left) noexcept;
  void run_block(const Job& job, int index, int member) noexcept;
  void end() noexcept;

  std::vector<Member> members_;
  std::size_t scratch_bytes_ = 0;
  Job job_;
  std::exception_ptr exception_;
  std::mutex exception_mutex_;
  Signal done_;
  std::atomic<bool> ending_{false};
  std::atomic<Launch> launch_{Launch{}};
  static_assert(std::atomic<Launch>::is_always_lock_free);
  alignas(128) std::atomic<int> num_untaken_{0};     // blocks nobody has taken yet
  alignas(128) std::atomic<int> num_unfinished_{0};  // blocks that are not done
};

}  // namespace moelink
