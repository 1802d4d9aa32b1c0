#include "engine/generate/printer.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <ostream>

namespace moelink::engine {

bool TextPrinter::add(std::string& held, const std::string& text) {
  if (several_) {
    held += text;
    return true;
  }
  const std::lock_guard lock(mutex_);
  out_ << text << std::flush;
  return out_.good();
}

void TextPrinter::finish(std::size_t prompt, const std::string& held, const Finish& finish) {
  const std::lock_guard lock(mutex_);
  if (several_) {
    out_ << "== prompt " << prompt + 1 << " (" << name_of(finish.reason) << ")\n";
  }
  out_ << held << '\n' << std::flush;
  if (finish.reason == FinishReason::failed) {
    fmt::print(stderr, "moelink-generate: prompt {}: {}\n", prompt + 1, finish.error);
  }
}

void Totals::add(const Finish& finish) {
  const auto tokens = static_cast<double>(finish.num_tokens);
  num_requests += 1;
  num_failed += finish.reason == FinishReason::failed ? 1 : 0;
  num_reused_tokens += static_cast<double>(finish.num_reused_tokens);
  num_tokens += tokens;
  if (finish.num_tokens > 0) {
    first_token_us += finish.time_to_first_token_us;
    num_first += 1;
  }
  if (finish.num_tokens > 1) {
    between_tokens_us += finish.time_per_token_us * (tokens - 1);
    num_between += tokens - 1;
  }
}

void Totals::add(const EngineStats& stats) {
  measured_us += stats.measured_us;
  dispatch_us += stats.dispatch_us;
  combine_us += stats.combine_us;
}

void Totals::add(const Totals& other) {
  num_prompt_tokens += other.num_prompt_tokens;
  num_reused_tokens += other.num_reused_tokens;
  num_tokens += other.num_tokens;
  num_requests += other.num_requests;
  num_failed += other.num_failed;
  first_token_us += other.first_token_us;
  num_first += other.num_first;
  between_tokens_us += other.between_tokens_us;
  num_between += other.num_between;
  measured_us += other.measured_us;
  dispatch_us += other.dispatch_us;
  combine_us += other.combine_us;
}

std::string summary_of(const Totals& totals, int num_ranks, double load_s, Quantization payload) {
  const auto mean_ms = [](double us, double count) { return count == 0 ? 0.0 : us / count / 1000; };
  const auto percent = [&](double us) { return totals.measured_us == 0 ? 0.0 : 100 * us / totals.measured_us; };
  const std::string rows = payload == Quantization::none ? "" : fmt::format(" of rows as {}", name_of(payload));
  return fmt::format(
      "{} rank{}, loaded in {:.1f} s; {:.0f} prompt tokens ({:.0f} found in the cache), {:.0f} generated; time to "
      "first "
      "token {:.1f} ms, per token {:.1f} ms; of the steps, dispatch{} {:.1f} %, combine {:.1f} %",
      num_ranks, num_ranks == 1 ? "" : "s", load_s, totals.num_prompt_tokens, totals.num_reused_tokens,
      totals.num_tokens, mean_ms(totals.first_token_us, totals.num_first),
      mean_ms(totals.between_tokens_us, totals.num_between), rows, percent(totals.dispatch_us),
      percent(totals.combine_us));
}

}  // namespace moelink::engine
