#include "engine/requests/sampling.hpp"

#include <algorithm>
#include <cmath>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr double kHottest = 100;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), at place `index` of the
/// sequence of `seed`, as a number in [0, 1).
double random_at(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  z ^= z >> 31U;
  return static_cast<double>(z >> 11U) * 0x1p-53;
}

/// The likeliest; none if no logit is a number.
std::optional<Token> largest_of(std::span<const float> logits) {
  std::optional<Token> best;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool better = !best || logits[i] > logits[static_cast<std::size_t>(*best)];
    if (better && std::isfinite(logits[i])) {
      best = static_cast<Token>(i);
    }
  }
  return best;
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::invalid_argument, text(parts...)); };
  if (!(options.temperature >= 0 && options.temperature <= kHottest)) {  // also refuses NaN
    refuse("temperature is ", options.temperature, "; expected 0 (the likeliest token) to ", kHottest);
  }
  if (options.top_k < 0) {
    refuse("top_k is ", options.top_k, "; expected 0 (all tokens) or more");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    refuse("top_p is ", options.top_p, "; expected more than 0, and at most 1");
  }
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) { check_sampling(options); }

std::optional<Token> Sampler::pick(std::span<const float> logits, std::uint64_t index) {
  const std::optional<Token> likeliest = largest_of(logits);
  if (!likeliest || options_.temperature == 0) {
    return likeliest;
  }
  const double largest = logits[static_cast<std::size_t>(*likeliest)];
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - largest) / options_.temperature);
    if (weight > 0 && std::isfinite(weight)) {
      candidates_.push_back({.weight = weight, .token = static_cast<Token>(i)});
    }
  }
  keep_top_k();
  double left = random_at(options_.seed, index) * keep_top_p();
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0) {
      return candidate.token;
    }
  }
  return candidates_.back().token;  // what rounding left over
}

void Sampler::keep_top_k() {
  const auto count = static_cast<std::size_t>(options_.top_k);
  if (count == 0 || count >= candidates_.size()) {
    return;
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) { return a.likelier_than(b); };
  std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), likelier);
  candidates_.resize(count);
  // nth_element leaves an order of the standard library's own.
  std::sort(candidates_.begin(), candidates_.end(), likelier);
}

double Sampler::keep_top_p() {
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    total += candidate.weight;
  }
  if (options_.top_p == 1) {
    return total;
  }
  // A few of the likeliest nearly always suffice: sorting a whole vocabulary would take longer than a step.
  const auto likelier = [](const Candidate& a, const Candidate& b) { return a.likelier_than(b); };
  std::size_t num_sorted = 0;
  double reached = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (i == num_sorted) {
      num_sorted = std::min(candidates_.size(), 4 * num_sorted + 64);
      const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(i);
      std::partial_sort(first, candidates_.begin() + static_cast<std::ptrdiff_t>(num_sorted), candidates_.end(),
                        likelier);
    }
    reached += candidates_[i].weight;
    if (reached >= options_.top_p * total) {
      candidates_.resize(i + 1);
      break;
    }
  }
  return reached;
}

}  // namespace moelink::engine
