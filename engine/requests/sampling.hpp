// From logits to a token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/tokenizer/bpe.hpp"

namespace moelink::engine {

struct SamplingOptions {
  double temperature = 0;  ///< logits are divided by it; 0: the likeliest token, always
  std::int64_t top_k = 0;  ///< only so many of the likeliest tokens; 0: all
  double top_p = 1;        ///< of those, the fewest likeliest whose probabilities reach it together
  std::uint64_t seed = 0;  ///< equal seeds, prompts and options give equal tokens, whatever runs beside them
};

/// Throws invalid_argument, naming the value, for a temperature that is not 0 to 100, a negative top_k, a top_p that is
/// not above 0 and at most 1.
void check_sampling(const SamplingOptions& options);

class Sampler {
 public:
  /// Checks the options as check_sampling() does.
  explicit Sampler(const SamplingOptions& options);

  /// The token at place `index` of what is generated: a function of its arguments and the options alone. Of tokens that
  /// are equally likely, the smaller is the likelier. None if no logit is a number.
  [[nodiscard]] std::optional<Token> pick(std::span<const float> logits, std::uint64_t index);

 private:
  struct Candidate {
    double weight = 0;  ///< exp((logit - largest) / temperature)
    Token token = 0;
    [[nodiscard]] bool likelier_than(const Candidate& other) const noexcept {
      return weight > other.weight || (weight == other.weight && token < other.token);
    }
  };

  void keep_top_k();
  /// The sum of the weights that top_p leaves; the candidates that carry it come first.
  [[nodiscard]] double keep_top_p();

  SamplingOptions options_;
  std::vector<Candidate> candidates_;
};

}  // namespace moelink::engine
