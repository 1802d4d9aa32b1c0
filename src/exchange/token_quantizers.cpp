#include "exchange/token_quantizers.hpp"

namespace moelink {

TokenQuantizers::TokenQuantizers(const ExchangeCore& core) : core_(core) {
  for (const Payload& payload : core.declared.payloads) {
    std::optional<Quantizer>& quantizer = quantizers_.emplace_back();
    if (payload.quantize == Quantization::none) continue;
    quantizer.emplace(
        core.communicator.device(),
        QuantizerConfig{.format = payload.quantize, .input = payload.type, .columns = core.config.hidden});
  }
}

void TokenQuantizers::quantize(DispatchCall& call, StreamView stream) const {
  const Payload& row = core_.config.payloads[call.payload];
  std::byte* const memory = core_.at(core_.layout.device.quantized_tokens);
  std::byte* const scales = memory + core_.shape.max_tokens * row.row_bytes;
  const i64 num_tokens = call.args.tokens.rows;
  const MutableMatrixView tokens{memory, DataType::bytes, num_tokens, row.row_bytes};
  quantizers_[call.payload]->quantize({.input = call.args.tokens,
                                       .output = tokens,
                                       .scales = {.data = scales},
                                       .tensor_scale = call.args.tensor_scale,
                                       .num_rows_on_device = call.args.reuse_routing ? nullptr : call.args.num_tokens},
                                      stream);
  call.args.tokens = tokens;
  call.args.scales = {scales, DataType::bytes, num_tokens, row.scale_bytes};
  call.unquantized = false;
}

}  // namespace moelink
