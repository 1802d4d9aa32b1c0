// What the layers of one step share.
#pragma once

#include "engine/kernels/heads.cuh"
#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"

namespace moelink::engine {

class ModelKernels;
class Products;

/// Device memory that all layers use in turn, each [max_rows, ...] in the model's type unless said otherwise. In fp32
/// is what needs not be rounded for a product: it costs little, and halves the error of a model in bf16.
///
/// NOTE [parts]: In bf16 some inputs of products are two matrices under each other: rounded rows, and what rounding
/// left of each. One product has both, so that weights are read once; whoever reads its output adds the two halves. For
/// few rows, where weights are what counts, this costs next to nothing.
struct Activations {
  Buffer x;           ///< [hidden] float: what layers add to
  Buffer normalised;  ///< [hidden] what a block of a layer reads; in parts
  Buffer heads;       ///< [this rank's queries, keys and values] float; in parts
  Buffer squares;     ///< [2] float: HeadSquares
  Buffer attention;   ///< [this rank's heads * head_dim]; in parts
  Buffer block;       ///< [hidden] what attention gives, in Step::block_type; in parts
  Buffer router;      ///< [num_experts] float; in parts
  Buffer expert_ids;  ///< [top_k] int32, of all layers if they are kept
  Buffer weights;     ///< [top_k] float
  Buffer sent;        ///< [hidden] bf16, what dispatch quantises where the model's type is none it can
  Buffer expert_in;   ///< [rows of the exchange, hidden], where rows are quantised on their way
  Buffer gate_up;     ///< [rows of the exchange, 2 * expert_intermediate]
  Buffer gated;       ///< [rows of the exchange, expert_intermediate]
  Buffer last;        ///< [max_logit_rows, hidden]
  Buffer logits;      ///< [max_logit_rows, vocab_size] float
};

/// One step on its way through the layers.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): there is none without its references
struct Step {
  StepRows rows;  ///< of this rank; may be none
  Activations& act;
  const ModelKernels& kernels;
  Products& products;
  DataType type;         ///< the model's
  Quantization payload;  ///< of rows on their way to experts
  DataType block_type;   ///< of what attention gives: float, or the model's if it is summed over ranks
  bool few_rows;         ///< at most ModelLimits::max_decode_rows
  bool counts_on_host;   ///< experts wait for the host to learn the counts: for many rows, and never in a captured step
  bool wait_before_copies;  ///< Model::copy_logits says why
  StreamView stream;

  /// Whether a product has its inputs in parts; those of the router always, others where there are few rows.
  [[nodiscard]] bool router_in_parts() const { return type != DataType::float32; }
  [[nodiscard]] bool heads_in_parts() const { return few_rows && type != DataType::float32; }
  [[nodiscard]] bool attention_in_parts() const { return heads_in_parts() && block_type == DataType::float32; }

  /// The second half of a matrix in parts, whose rows have so many elements. Null if it has none.
  [[nodiscard]] void* rest_of(const Buffer& matrix, std::int64_t columns, DataType of, bool in_parts) const {
    const std::int64_t bytes = rows.num_rows * columns * static_cast<std::int64_t>(size_of(of));
    return in_parts ? matrix.as<std::byte>() + bytes : nullptr;
  }
  [[nodiscard]] std::int64_t rows_of_product(bool in_parts) const {
    return in_parts ? 2 * rows.num_rows : rows.num_rows;
  }
};

}  // namespace moelink::engine
