// What rounding to bf16 costs a model: on a GPU, and on the host, which rounds in the same places.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "engine/generation.hpp"

namespace moelink::engine::testing {

inline ModelOptions bf16_options(DataType type) {
  return {.type = type, .limits = {.max_rows = 1024, .num_pages = 512, .page_size = 4}, .keep_routing = true};
}

/// What bf16 does to logits, as parts of the largest, and to choices.
struct Bf16Errors {
  std::vector<double> all;       ///< of every step
  std::vector<double> agreeing;  ///< of steps before which, and in which, no expert was chosen otherwise
  double reference = 0;          ///< of logits of the reference, the worst of agreeing ones; of all
  double reference_of_all = 0;
  int num_choices = 0;  ///< of a token's experts in a layer
  int num_flipped = 0;
  int num_wide = 0;  ///< steps in which the best token is far enough ahead

  [[nodiscard]] double mean() const {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  }
  static double worst(const std::vector<double>& errors) {
    return errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
  }
};

/// A token's experts in every layer, by number, for each row of the last step.
inline std::vector<std::vector<std::int32_t>> choices_of(Runner& runner, std::int64_t num_rows) {
  std::vector<std::vector<std::int32_t>> choices;
  for (std::int64_t layer = 0; layer < runner.model().config().num_layers; ++layer) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      choices.push_back(runner.experts(layer, row));
      std::sort(choices.back().begin(), choices.back().end());
    }
  }
  return choices;
}

/// How far the best is ahead of the second.
inline float margin_of(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return logits[0] - logits[1];
}

inline float magnitude_of(const std::vector<float>& logits) {
  return std::accumulate(logits.begin(), logits.end(), 0.0F,
                         [](float most, float value) { return std::max(most, std::abs(value)); });
}

/// Rounded to bf16, what enters products and the cache is off by up to 2^-9, and these small random models make ten
/// times that of it. Two experts that are as good as equal then change places, which a larger error follows. So: logits
/// of the reference are within the bound unless experts have changed places; those that do are few; all errors together
/// are within it, too; and no token changes that is ahead by more than the bound allows.
inline void expect_errors_of_rounding(const std::string& model, Device device) {
  constexpr double kBound = 2e-2;
  Runner narrow(Communicator::single(device), data_folder(model), bf16_options(DataType::bfloat16));
  Runner host(Communicator::single(Device::host()), data_folder(model), bf16_options(DataType::float32));
  Bf16Errors errors;
  for (const Expected& expected : expected_of(model)) {
    const auto size = static_cast<std::int64_t>(expected.prompt.size() + expected.greedy.size());
    Sequence ours = narrow.sequence(expected.prompt, size);
    Sequence reference = host.sequence(expected.prompt, size);
    bool agrees = true;
    for (const Token next : expected.greedy) {
      const auto num_rows = static_cast<std::int64_t>(ours.tokens.size()) - ours.num_computed;
      const std::vector<float> found = narrow.prefill(ours);
      const std::vector<float> wanted = host.prefill(reference);
      const auto our_choices = choices_of(narrow, num_rows);
      const auto their_choices = choices_of(host, num_rows);
      for (std::size_t i = 0; i < our_choices.size(); ++i) {
        errors.num_flipped += our_choices[i] != their_choices[i] ? 1 : 0;
      }
      errors.num_choices += static_cast<int>(our_choices.size());
      agrees = agrees && our_choices == their_choices;
      const double error = relative_error(found, wanted);
      errors.all.push_back(error);
      if (agrees) errors.agreeing.push_back(error);
      if (ours.tokens.size() == expected.prompt.size()) {
        const double of_reference = relative_error(found, expected.logits);
        errors.reference_of_all = std::max(errors.reference_of_all, of_reference);
        if (agrees) errors.reference = std::max(errors.reference, of_reference);
      }
      const float margin = margin_of(wanted);
      if (margin > 2 * kBound * magnitude_of(wanted)) {
        EXPECT_EQ(Runner::likeliest(found), Runner::likeliest(wanted)) << "margin " << margin << ", error " << error;
        ++errors.num_wide;
      }
      ours.tokens.push_back(next);  // both go on as the reference did
      reference.tokens.push_back(next);
    }
  }
  std::printf(
      "%s, bf16, differences of logits, of the largest: from the reference at most %.4f where experts agree (%.4f in "
      "all); in all %zu steps %.4f on average, at most %.4f (%.4f in the %zu where experts agree); %d of %d choices of "
      "experts flipped; %d margins are wide\n",
      model.c_str(), errors.reference, errors.reference_of_all, errors.all.size(), errors.mean(),
      Bf16Errors::worst(errors.all), Bf16Errors::worst(errors.agreeing), errors.agreeing.size(), errors.num_flipped,
      errors.num_choices, errors.num_wide);
  EXPECT_LE(errors.reference, kBound);
  EXPECT_GT(errors.reference, 0) << "no prompt was left to compare";
  EXPECT_LE(errors.mean(), kBound);
  EXPECT_LE(errors.num_flipped * 25, errors.num_choices);
  EXPECT_GT(errors.num_wide * 2, static_cast<int>(errors.all.size()));
}

}  // namespace moelink::engine::testing
