// What moelink-generate shows: text on one stream, signs of life and a summary on stderr.
#pragma once

#include <iosfwd>
#include <mutex>
#include <string>

#include "engine/requests/engine.hpp"
#include "engine/requests/request.hpp"
#include "moelink/types.hpp"

namespace moelink::engine {

/// Text from several ranks, one at a time. With one prompt, text is shown as it comes; with several, each when it is
/// whole, behind a line with its number.
class TextPrinter {
 public:
  TextPrinter(std::ostream& out, bool several) : out_(out), several_(several) {}

  /// False if nobody can read it any more (a closed pipe).
  bool add(std::string& held, const std::string& text);
  void finish(std::size_t prompt, const std::string& held, const Finish& finish);

 private:
  std::mutex mutex_;
  std::ostream& out_;
  bool several_;
};

/// Sums over requests and steps of one rank; plain numbers, which ranks send each other.
struct Totals {
  double num_prompt_tokens = 0;
  double num_reused_tokens = 0;
  double num_tokens = 0;
  double num_requests = 0;
  double num_failed = 0;
  double first_token_us = 0;  ///< over requests with a token
  double num_first = 0;
  double between_tokens_us = 0;  ///< over all tokens but the first of each
  double num_between = 0;
  double measured_us = 0;
  double dispatch_us = 0;
  double combine_us = 0;

  void add(const Finish& finish);
  void add(const EngineStats& stats);
  void add(const Totals& other);
};

/// One line for stderr.
[[nodiscard]] std::string summary_of(const Totals& totals, int num_ranks, double load_s, Quantization payload);

}  // namespace moelink::engine
