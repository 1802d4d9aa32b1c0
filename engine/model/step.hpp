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
struct Activations {
  Buffer x;           ///< [hidden] float: what layers add to
  Buffer normalised;  ///< [hidden] what a block of a layer reads
  Buffer heads;       ///< [this rank's queries, keys and values] float
  Buffer squares;     ///< [2] float: HeadSquares
  Buffer attention;   ///< [this rank's heads * head_dim]
  Buffer block;       ///< [hidden] what attention gives, in Step::block_type
  Buffer router;      ///< [num_experts] float
  Buffer expert_ids;  ///< [top_k] int32, of all layers if they are kept
  Buffer weights;     ///< [top_k] float
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
  DataType type;        ///< the model's
  DataType block_type;  ///< of what attention gives: float, or the model's if it is summed over ranks
  bool counts_on_host;  ///< experts wait for the host to learn the counts: for many rows, and never in a captured step
  bool wait_before_copies;  ///< Model::copy_logits says why
  StreamView stream;
};

}  // namespace moelink::engine
