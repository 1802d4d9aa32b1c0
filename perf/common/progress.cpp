#include "perf/common/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace moelink::perf {

Progress::Progress(std::string tool, std::size_t num_cases, bool speaks)
    : tool_(std::move(tool)), num_cases_(num_cases), speaks_(speaks), terminal_(speaks && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::start_case(const std::string& name) {
  ++current_;
  name_ = name;
  if (speaks_ && !terminal_) {
    fmt::print(stderr, "{}: [{}/{}] {}\n", tool_, current_, num_cases_, name_);
  }
}

void Progress::step(const std::string& what) {
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}: [{}/{}] {}: {}", tool_, current_, num_cases_, name_, what);
    std::fflush(stderr);
  }
}

void Progress::clear() {
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
}

}  // namespace moelink::perf
