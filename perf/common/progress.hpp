// Signs of life on stderr while a tool works.
#pragma once

#include <string>

namespace moelink::perf {

/// "moe_perf: [3/26] deepseek-v3, 128 tokens: timing". One line that changes on a terminal, else one line per case.
class Progress {
 public:
  /// `speaks` false: says nothing, for ranks of which one speaks for all.
  Progress(std::string tool, std::size_t num_cases, bool speaks = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void start_case(const std::string& name);
  void step(const std::string& what);
  /// Takes the changing line off the terminal, before something else is printed there.
  void clear();

 private:
  std::string tool_;
  std::size_t num_cases_;
  std::size_t current_ = 0;
  std::string name_;
  bool speaks_;
  bool terminal_;
};

}  // namespace moelink::perf
