// What config.json says of a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace moelink::engine {

enum class Architecture : std::uint8_t { qwen3_moe, olmoe, mixtral };
[[nodiscard]] std::string_view name_of(Architecture architecture) noexcept;

/// Over what queries and keys are normalised before positions are applied.
enum class QkNorm : std::uint8_t {
  none,      ///< Mixtral
  per_head,  ///< Qwen3: RMS over the elements of one head, weights shared by all heads
  all_heads  ///< OLMoE: RMS over all heads of a token together, a weight for each element
};

/// The shape of a model. All values are checked: sizes are positive, fit each other, and are small enough that their
/// products do not overflow.
struct ModelConfig {
  Architecture architecture = Architecture::qwen3_moe;
  std::int64_t vocab_size = 0;
  std::int64_t hidden = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< divides num_heads
  std::int64_t head_dim = 0;      ///< even
  std::int64_t num_experts = 0;
  int top_k = 0;
  std::int64_t expert_intermediate = 0;  ///< width of one expert
  std::int64_t max_positions = 0;        ///< longest sequence that the model was made for
  float norm_epsilon = 0;
  double rope_theta = 0;
  QkNorm qk_norm = QkNorm::none;
  bool normalise_top_k = true;    ///< the weights of a token's experts sum to one
  std::optional<float> clip_qkv;  ///< OLMoE: queries, keys and values are clamped to [-clip, clip], behind their norms
  bool tied_embeddings = false;   ///< the lm head is the embedding's matrix
  std::vector<std::int32_t> end_tokens;  ///< generation ends at any of these
};

/// Reads folder/config.json, and the end tokens of generation_config.json where there is one. RoPE settings are
/// understood in both spellings: `rope_theta` and `rope_scaling`, or `rope_parameters`. Throws invalid_argument, naming
/// file and key, for values that cannot be; ErrorCode::unsupported for an unknown architecture and for settings that
/// would change the result and are not implemented.
[[nodiscard]] ModelConfig read_model_config(const std::filesystem::path& folder);

}  // namespace moelink::engine
