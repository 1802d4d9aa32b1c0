#include "engine/desk/metrics.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "engine/base/text.hpp"

namespace moelink::engine {
namespace {

constexpr std::array kFirstTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                          0.5,   1.0,    2.5,   5.0,  10.0,  25.0, 50.0};
constexpr std::array kNextTokenBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5};

/// With all digits that a counter over months needs.
std::string number(double value) {
  std::ostringstream out;
  out << std::setprecision(15) << value;
  return out.str();
}

class Page {
 public:
  void head(const std::string& name, std::string_view type, const std::string& help) {
    out_ += text("# HELP ", name, ' ', help, "\n# TYPE ", name, ' ', type, '\n');
  }
  void line(const std::string& name_and_labels, double value) {
    out_ += text(name_and_labels, ' ', number(value), '\n');
  }
  void line(const std::string& name_and_labels, std::int64_t value) { out_ += text(name_and_labels, ' ', value, '\n'); }
  void counter(const std::string& name, const std::string& help, auto value) {
    head(name, "counter", help);
    line(name, value);
  }
  void gauge(const std::string& name, const std::string& help, auto value) {
    head(name, "gauge", help);
    line(name, value);
  }
  std::string& out() { return out_; }

 private:
  std::string out_;
};

}  // namespace

void Histogram::add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
}

void Histogram::print(const std::string& name, const std::string& help, std::string& out) const {
  out += text("# HELP ", name, ' ', help, "\n# TYPE ", name, " histogram\n");
  std::uint64_t so_far = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    so_far += counts_[i];
    out += text(name, "_bucket{le=\"", bounds_[i], "\"} ", so_far, '\n');
  }
  so_far += counts_.back();
  out += text(name, "_bucket{le=\"+Inf\"} ", so_far, '\n', name, "_sum ", number(sum_), '\n', name, "_count ", so_far,
              '\n');
}

Metrics::Metrics() : first_token_s_(kFirstTokenBounds), next_token_s_(kNextTokenBounds) {}

void Metrics::count_refused() {
  const std::lock_guard lock(mutex_);
  ++refused_;
}

void Metrics::count_prompt(std::int64_t num_tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += num_tokens;
}

void Metrics::count_token(bool first, double seconds_since_last) {
  const std::lock_guard lock(mutex_);
  ++tokens_;
  (first ? first_token_s_ : next_token_s_).add(seconds_since_last);
}

void Metrics::count_finished(FinishReason reason, std::int64_t num_reused_tokens) {
  const std::lock_guard lock(mutex_);
  ++finished_.at(static_cast<std::size_t>(reason));
  reused_tokens_ += num_reused_tokens;
}

void Metrics::report(const std::vector<RankReport>& ranks, std::int64_t num_waiting_for_a_rank) {
  RankReport sum;
  for (const RankReport& rank : ranks) {
    sum.stats.num_steps = std::max(sum.stats.num_steps, rank.stats.num_steps);  // ranks step together
    sum.stats.num_rows += rank.stats.num_rows;
    sum.stats.num_preempted += rank.stats.num_preempted;
    sum.stats.step_us += rank.stats.step_us;
    sum.stats.measured_us += rank.stats.measured_us;
    sum.stats.dispatch_us += rank.stats.dispatch_us;
    sum.stats.combine_us += rank.stats.combine_us;
    sum.load.num_running += rank.load.num_running;
    sum.load.num_waiting += rank.load.num_waiting;
    sum.load.num_free_pages += rank.load.num_free_pages;
    sum.num_pages += rank.num_pages;
  }
  const std::lock_guard lock(mutex_);
  ranks_ = sum;
  waiting_for_a_rank_ = num_waiting_for_a_rank;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  Page page;
  page.gauge("moelink_requests_running", "Requests that have pages of the cache.", ranks_.load.num_running);
  page.gauge("moelink_requests_waiting", "Requests that wait for pages, or to be handed to a rank.",
             ranks_.load.num_waiting + waiting_for_a_rank_);
  page.head("moelink_requests_finished_total", "counter", "Requests that ended, by how.");
  for (std::size_t i = 0; i < kNumReasons; ++i) {
    page.line(engine::text("moelink_requests_finished_total{reason=\"", name_of(static_cast<FinishReason>(i)), "\"}"),
              static_cast<std::int64_t>(finished_[i]));
  }
  page.counter("moelink_requests_refused_total", "Requests that were not taken because too many waited.",
               static_cast<std::int64_t>(refused_));
  page.counter("moelink_prompt_tokens_total", "Tokens of the prompts that were taken.", prompt_tokens_);
  page.counter("moelink_prompt_tokens_reused_total",
               "Of these, tokens of ended requests that were in the cache already.", reused_tokens_);
  page.counter("moelink_generated_tokens_total", "Tokens that were handed out.", tokens_);
  first_token_s_.print("moelink_time_to_first_token_seconds", "From a request's arrival to its first token.",
                       page.out());
  next_token_s_.print("moelink_time_per_token_seconds", "From each token of a request to its next one.", page.out());
  page.gauge("moelink_cache_pages", "Pages of the cache, over all ranks.", ranks_.num_pages);
  page.gauge("moelink_cache_pages_used", "Pages that requests have.", ranks_.num_pages - ranks_.load.num_free_pages);
  page.counter("moelink_preemptions_total", "Times that a request lost its pages to an older one.",
               ranks_.stats.num_preempted);
  page.counter("moelink_steps_total", "Steps of the model.", ranks_.stats.num_steps);
  page.counter("moelink_step_rows_total", "Rows of these steps, over all ranks.", ranks_.stats.num_rows);
  page.counter("moelink_step_seconds_total", "Time in steps, over all ranks.", ranks_.stats.step_us / 1e6);
  const double measured = ranks_.stats.measured_us;
  page.counter("moelink_measured_step_seconds_total", "Of these, in steps whose calls were timed.", measured / 1e6);
  for (const auto& [call, us] :
       {std::pair{"dispatch", ranks_.stats.dispatch_us}, {"combine", ranks_.stats.combine_us}}) {
    const std::string name = engine::text("moelink_", call);
    page.counter(name + "_seconds_total", engine::text("Of the timed steps, time in ", call, '.'), us / 1e6);
    page.gauge(name + "_time_ratio", engine::text("The part of the timed steps that ", call, " takes."),
               measured == 0 ? 0.0 : us / measured);
  }
  return page.out();
}

}  // namespace moelink::engine
