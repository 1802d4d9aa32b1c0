// Ranks that are processes of their own.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/unique_fd.hpp"

namespace moelink::testing {

using Variables = std::map<std::string, std::string>;

/// A program that was started and is killed, if need be, and reaped in the end.
class ChildProcess {
 public:
  /// Runs `arguments` with `variables` on top of this process's, without those of launchers.
  ChildProcess(const std::vector<std::string>& arguments, const Variables& variables);
  ~ChildProcess();
  ChildProcess(ChildProcess&&) = delete;

  void signal(int number) const;
  /// Reads output until it contains `word`; false: the program ended first, or ten seconds passed.
  bool wait_for_output(const std::string& word);
  /// The exit status, or -signal; nothing if the program still runs at the deadline.
  std::optional<int> wait(std::chrono::milliseconds deadline);
  /// Standard output and error, as far as read. Complete once wait() has given a status.
  [[nodiscard]] const std::string& output() const noexcept { return output_; }

 private:
  /// False at the end of the output.
  bool read_output(int timeout_ms);
  pid_t pid_ = -1;
  UniqueFd pipe_;
  std::string output_;
  std::optional<int> status_;
};

}  // namespace moelink::testing
