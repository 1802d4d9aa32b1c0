#include "moelink/exchange.hpp"

#include "exchange/exchange_impl.hpp"

namespace moelink {

Exchange::Exchange(const Communicator& communicator, const ExchangeConfig& config)
    : impl_(std::make_unique<Impl>(communicator, config, nullptr)) {}
Exchange::Exchange(const Communicator& communicator, const ExchangeConfig& config, const Workspace& workspace)
    : impl_(std::make_unique<Impl>(communicator, config, workspace.state())) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

MemoryReport Exchange::memory(const Communicator& communicator, const ExchangeConfig& config) {
  const ExchangeShape shape = check_config(config, communicator);
  return lay_out_memory(shape, config, local_device(communicator.device())).report;
}
const MemoryReport& Exchange::memory() const noexcept { return impl_->memory(); }

ExpertBatch Exchange::dispatch(const DispatchArgs& args, StreamView stream) { return impl_->dispatch(args, stream); }
void Exchange::combine(const CombineArgs& args, StreamView stream) { impl_->combine(args, stream); }

MutableMatrixView Exchange::expert_output_buffer(DataType type) const { return impl_->expert_output_buffer(type); }
std::span<const std::int32_t> Exchange::host_counts(StreamView stream) { return impl_->host_counts(stream); }

void Exchange::check() { impl_->status().check(); }
DataErrors Exchange::data_errors() const noexcept { return impl_->status().data_errors(); }

std::string Exchange::describe_plan(std::int64_t num_tokens, std::size_t payload) const {
  return impl_->describe_plan(num_tokens, payload);
}
const ExchangeConfig& Exchange::config() const noexcept { return impl_->config(); }

}  // namespace moelink
