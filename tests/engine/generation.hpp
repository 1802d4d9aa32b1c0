// A model in a test: one step after the other, without a scheduler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/model/model.hpp"
#include "engine/model_folder.hpp"
#include "moelink/buffer.hpp"

namespace moelink::engine::testing {

/// A sequence of tokens and the pages that hold it.
struct Sequence {
  std::vector<Token> tokens;
  std::vector<std::int32_t> pages;
  std::int32_t num_computed = 0;  ///< tokens whose keys and values are in the cache
};

class Runner {
 public:
  Runner(const Communicator& communicator, const std::filesystem::path& folder, const ModelOptions& options)
      : model_(communicator, folder, options), stream_(communicator.device()) {}

  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] StreamView stream() const { return stream_; }

  /// A sequence with pages for `num_positions`, from anywhere in the cache.
  [[nodiscard]] Sequence sequence(std::vector<Token> tokens, std::int64_t num_positions) {
    Sequence result{.tokens = std::move(tokens), .pages = {}};
    const std::int64_t page_size = model_.limits().page_size;
    for (std::int64_t i = 0; i < (num_positions + page_size - 1) / page_size; ++i) {
      // Neighbouring positions are in pages that are far from each other.
      result.pages.push_back(static_cast<std::int32_t>(next_page_++ * 7 % model_.limits().num_pages));
    }
    return result;
  }

  /// Adds all rows of `sequence` that are not computed yet, at most `most`; the last of its tokens wants logits.
  static void add(Batch& batch, Sequence& sequence, std::int64_t most = 1 << 20) {
    const auto index = static_cast<std::int32_t>(batch.pages.size());
    batch.pages.push_back(sequence.pages);
    const auto size = static_cast<std::int32_t>(sequence.tokens.size());
    for (; sequence.num_computed < size && most > 0; ++sequence.num_computed, --most) {
      if (sequence.num_computed == size - 1) {
        batch.logit_rows.push_back(static_cast<std::int32_t>(batch.rows.size()));
      }
      batch.rows.push_back({.token = sequence.tokens[static_cast<std::size_t>(sequence.num_computed)],
                            .position = sequence.num_computed,
                            .sequence = index});
    }
  }

  /// Runs a step; the logits of its logit rows, one after the other.
  std::vector<float> step(const Batch& batch) {
    model_.load(batch, stream_);
    model_.run(shape_of(batch), stream_);
    std::vector<float> logits(batch.logit_rows.size() * static_cast<std::size_t>(model_.config().vocab_size));
    model_.copy_logits(logits, stream_);
    stream_.synchronize();
    model_.check();
    return logits;
  }

  /// Logits of the last token.
  std::vector<float> prefill(Sequence& sequence, std::int64_t chunk = 1 << 20) {
    std::vector<float> logits;
    while (sequence.num_computed < static_cast<std::int32_t>(sequence.tokens.size())) {
      Batch batch;
      add(batch, sequence, chunk);
      logits = step(batch);
    }
    return logits;
  }

  /// The tokens that follow a prompt, each the likeliest.
  std::vector<Token> generate(const std::vector<Token>& prompt, std::size_t num_tokens, std::int64_t chunk = 1 << 20) {
    Sequence s = sequence(prompt, static_cast<std::int64_t>(prompt.size() + num_tokens));
    while (s.tokens.size() < prompt.size() + num_tokens) {
      s.tokens.push_back(likeliest(prefill(s, chunk)));
    }
    return {s.tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), s.tokens.end()};
  }

  /// The experts of row `row` of the last step in a layer, sorted.
  std::vector<std::int32_t> experts(std::int64_t layer, std::int64_t row) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(model_.config().top_k));
    copy_bytes(ids.data(), model_.expert_ids(layer) + row * model_.config().top_k, ids.size() * sizeof(ids[0]),
               stream_);
    stream_.synchronize();
    return ids;
  }

  static Token likeliest(const std::vector<float>& logits) {
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

 private:
  Model model_;
  Stream stream_;
  std::int64_t next_page_ = 0;
};

/// One of the cases of a model's expected.json.
struct Expected {
  std::vector<Token> prompt;
  std::vector<float> logits;
  std::vector<std::vector<std::int32_t>> experts;  ///< by layer, best first
  std::vector<Token> greedy;
};

inline std::vector<Expected> expected_of(const std::string& model) {
  std::vector<Expected> all;
  const nlohmann::json document = load_json(data_folder(model) / "expected.json");
  for (const auto& entry : document["cases"]) {
    const bool qwen = entry.contains("greedy_24");
    all.push_back({.prompt = entry["ids"],
                   .logits = entry["last_logits"],
                   .experts = entry[qwen ? "top4_experts_last_token" : "top_experts_last_token"],
                   .greedy = entry[qwen ? "greedy_24" : "greedy_16"]});
  }
  return all;
}

/// The largest difference, as a part of the largest magnitude.
inline double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double difference = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - expected[i]));
    magnitude = std::max(magnitude, std::abs(static_cast<double>(expected[i])));
  }
  return difference / magnitude;
}

}  // namespace moelink::engine::testing
