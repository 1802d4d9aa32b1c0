// Ranks as processes that a launcher started.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/child_process.hpp"

namespace moelink::testing {

/// A port that no other test process on this machine takes at the same time: below the range that systems hand out, and
/// a function of this process. (A port that was free a moment ago may be the next test's: their ranks would meet.)
inline int own_port() {
  static std::atomic<int> num_jobs{0};
  constexpr int kFirst = 20000;
  constexpr int kNumPorts = 12000;
  constexpr int kJobsPerProcess = 4;
  return kFirst + (::getpid() * kJobsPerProcess + num_jobs++ % kJobsPerProcess) % kNumPorts;
}

/// The ranks of one torchrun-like start on this machine.
class Job {
 public:
  /// Runs `program`; `deadline_s`: MOELINK_DEADLINE.
  Job(std::string program, int size, std::string deadline_s)
      : program_(std::move(program)), size_(size), port_(own_port()), deadline_s_(std::move(deadline_s)) {}

  void start(int rank, const std::vector<std::string>& mode, const Variables& more = {}) {
    Variables variables = {{"RANK", std::to_string(rank)},         {"WORLD_SIZE", std::to_string(size_)},
                           {"LOCAL_RANK", std::to_string(rank)},   {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port_)}, {"MOELINK_DEADLINE", deadline_s_}};
    for (const auto& [name, value] : more) {
      variables[name] = value;
    }
    std::vector<std::string> arguments = {program_};
    arguments.insert(arguments.end(), mode.begin(), mode.end());
    ranks_.push_back(std::make_unique<ChildProcess>(arguments, variables));
  }

  void start_all(const std::vector<std::string>& mode) {
    for (int rank = 0; rank < size_; ++rank) {
      start(rank, mode);
    }
  }

  void wait_until_ready() {
    for (auto& rank : ranks_) {
      ASSERT_TRUE(rank->wait_for_output("ready")) << rank->output();
    }
  }

  ChildProcess& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }

  /// Every rank but `except` ends within `deadline` with exit status 3 and `word` in its words.
  void expect_errors(int except, const std::string& word, std::chrono::milliseconds deadline) {
    const auto start = std::chrono::steady_clock::now();
    for (int r = 0; r < size_; ++r) {
      if (r == except) {
        continue;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(start + deadline - std::chrono::steady_clock::now());
      EXPECT_EQ(rank(r).wait(left), 3) << "rank " << r << ": " << rank(r).output();
      EXPECT_NE(rank(r).output().find(word), std::string::npos) << "rank " << r << ": " << rank(r).output();
    }
  }

 private:
  std::string program_;
  int size_;
  int port_;
  std::string deadline_s_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

}  // namespace moelink::testing
