#include "engine/model/shard.hpp"

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {

Shard shard_of(const ModelConfig& config, const HeadShare& share, Range experts) {
  const std::int64_t size = share.size;
  const bool even =
      config.num_kv_heads % size == 0 || (size % config.num_kv_heads == 0 && config.num_heads % size == 0);
  if (!even) {
    throw Error(ErrorCode::unsupported,
                text(config.num_heads, " heads with ", config.num_kv_heads, " of keys cannot be shared out to ", size,
                     " ranks: the smaller of key heads and ranks must divide the other"));
  }
  if (config.qk_norm == QkNorm::all_heads && config.num_kv_heads % size != 0) {
    throw Error(ErrorCode::unsupported,
                text("keys of ", config.num_kv_heads, " heads are normalised together, and cannot ",
                     "be shared out to ", size, " ranks: some would count twice"));
  }
  const std::int64_t heads = config.num_heads / size;
  const std::int64_t heads_per_kv = config.num_heads / config.num_kv_heads;
  const std::int64_t first_kv = share.rank * heads / heads_per_kv;
  const std::int64_t last_kv = ((share.rank + 1) * heads - 1) / heads_per_kv;
  return {
      .heads = {share.rank * heads, (share.rank + 1) * heads}, .kv_heads = {first_kv, last_kv + 1}, .experts = experts};
}

}  // namespace moelink::engine
