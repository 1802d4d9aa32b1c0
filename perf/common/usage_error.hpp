// What was asked for makes no sense: exit code 2, before anything is measured.
#pragma once

#include <stdexcept>

namespace moelink::perf {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace moelink::perf
