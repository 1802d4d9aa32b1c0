// The model's kernels for one device: compiled, and launched with grids that fit the rows.
#pragma once

#include "engine/kernels/attention.cuh"
#include "engine/kernels/dequantize.cuh"
#include "engine/kernels/embedding.cuh"
#include "engine/kernels/heads.cuh"
#include "engine/kernels/rms_norm.cuh"
#include "engine/kernels/router.cuh"
#include "engine/kernels/swiglu.cuh"
#include "engine/model/config.hpp"
#include "engine/model/shard.hpp"
#include "moelink/kernel.hpp"
#include "moelink/types.hpp"

namespace moelink::engine {

/// What a model's numbers are.
struct ModelTypes {
  DataType model;                             ///< of weights and what products read
  DataType block;                             ///< of what attention gives: `model`, or float32
  Quantization payload = Quantization::none;  ///< of rows on their way to experts
};

class ModelKernels {
 public:
  /// Compiles (or finds in the cache) and loads all of them. Throws ErrorCode::unsupported, naming the size, for shapes
  /// that kernels do not have: rows and halves of heads are whole chunks of sixteen bytes.
  ModelKernels(Device device, const ModelConfig& config, const Shard& shard, const ModelTypes& types,
               std::int64_t page_size);

  /// The sources of the kernels, and the set with all that a model needs: for compiling without a device.
  [[nodiscard]] static KernelSet set_for(Device device, const ModelConfig& config, const Shard& shard,
                                         const ModelTypes& types, std::int64_t page_size);

  void embed(const EmbeddingArgs& args, StreamView stream) const;
  void normalise(const RmsNormArgs& args, StreamView stream) const;
  /// x += delta, then the norm.
  void add_and_normalise(const RmsNormArgs& args, StreamView stream) const;
  void sum_head_squares(const HeadSquaresArgs& args, StreamView stream) const;
  void prepare_heads(const PrepareHeadsArgs& args, StreamView stream) const;
  void attend(const AttentionArgs& args, StreamView stream) const;
  void route(const RouterArgs& args, StreamView stream) const;
  /// At most max_rows rows; only where rows are quantised.
  void dequantize(const DequantizeArgs& args, std::int64_t max_rows, StreamView stream) const;
  /// At most max_rows rows.
  void swiglu(const SwigluArgs& args, std::int64_t max_rows, StreamView stream) const;

 private:
  struct Handles {
    UserKernel<Embedding> embedding;
    UserKernel<RmsNorm> norm;
    UserKernel<RmsNorm> add_norm;
    UserKernel<HeadSquares> squares;
    UserKernel<PrepareHeads> heads;
    UserKernel<Attention> attention;
    UserKernel<Router> router;
    UserKernel<Swiglu> swiglu;
    UserKernel<Dequantize> dequantize;
  };
  [[nodiscard]] static Handles add_all(KernelSet& set, Device device, const ModelConfig& config, const Shard& shard,
                                       const ModelTypes& types, std::int64_t page_size);
  [[nodiscard]] int grid(std::int64_t items, std::int64_t items_per_block = 1) const;
  /// For as many items as the device will find: not more blocks than go round them well.
  [[nodiscard]] int grid_for_at_most(std::int64_t items) const;

  bool on_host_;
  Handles kernels_;
};

}  // namespace moelink::engine
