// The second half of a decoder layer: x += the block before; x += sum of weight * expert(norm(x)) over each row's experts.
#pragma once

#include "engine/math/products.hpp"
#include "engine/model/config.hpp"
#include "engine/model/exchange_timer.hpp"
#include "engine/model/shard.hpp"
#include "engine/model/step.hpp"
#include "engine/model/weight_loader.hpp"
#include "moelink/exchange.hpp"

namespace moelink::engine {

class ExpertLayer {
 public:
  ExpertLayer(WeightLoader& loader, const ModelConfig& config, const Shard& shard, std::int64_t layer);

  /// Makes `products` ready for the shapes of the experts.
  void prepare(Products& products) const;

  /// Also where this rank has no rows: the experts here serve other ranks' rows. `expert_ids`: where the choice goes.
  void run(const Step& step, Exchange& exchange, std::int32_t* expert_ids, ExchangeTimer& timer) const;

 private:
  void route(const Step& step, std::int32_t* expert_ids) const;
  [[nodiscard]] ExpertBatch dispatch(const Step& step, Exchange& exchange, const std::int32_t* expert_ids) const;
  /// From the rows of a dispatch to the outputs of its experts.
  void compute(const Step& step, const ExpertBatch& batch, const RowGroups& groups, void* output) const;

  std::int64_t hidden_;
  std::int64_t intermediate_;
  Buffer norm_;
  Buffer tensor_scale_;  ///< one float: nvfp4's, for what `norm_` can give
  Weights router_;
  Weights gate_up_;  ///< of each local expert: gates, then ups
  Weights down_;
};

}  // namespace moelink::engine
