// What is counted while requests are served, as text for Prometheus.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/desk/messages.hpp"
#include "engine/requests/request.hpp"

namespace moelink::engine {

/// Counts of values up to each of some bounds.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1, 0) {}

  void add(double value);
  /// The lines of the exposition format 0.0.4, with cumulative buckets.
  void print(const std::string& name, const std::string& help, std::string& out) const;

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;  ///< of each bound alone; the last: beyond all
  double sum_ = 0;
};

/// For any thread.
class Metrics {
 public:
  Metrics();

  void count_refused();
  void count_prompt(std::int64_t num_tokens);
  void count_token(bool first, double seconds_since_last);
  void count_finished(FinishReason reason, std::int64_t num_reused_tokens);
  /// How ranks, or the one that speaks for all, are doing; the latest replaces what was known.
  void report(const std::vector<RankReport>& ranks, std::int64_t num_waiting_for_a_rank);

  /// In the text format 0.0.4 of Prometheus.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::size_t kNumReasons = 4;

  mutable std::mutex mutex_;
  std::array<std::uint64_t, kNumReasons> finished_{};  ///< by FinishReason
  std::uint64_t refused_ = 0;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t reused_tokens_ = 0;
  std::int64_t tokens_ = 0;
  Histogram first_token_s_;
  Histogram next_token_s_;
  RankReport ranks_;  ///< sums over ranks
  std::int64_t waiting_for_a_rank_ = 0;
};

}  // namespace moelink::engine
