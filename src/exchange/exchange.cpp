#include "moelink/exchange.hpp"

#include "base/moved_from.hpp"
#include "exchange/exchange_impl.hpp"

namespace moelink {
namespace {

Exchange::Impl& live(const std::unique_ptr<Exchange::Impl>& impl) { return not_moved_from(impl, "Exchange"); }

std::shared_ptr<Workspace::State> state_of(const Workspace& workspace) {
  (void)not_moved_from(workspace.state(), "Workspace");
  return workspace.state();
}

}  // namespace

Exchange::Exchange(const Communicator& communicator, const ExchangeConfig& config)
    : impl_(std::make_unique<Impl>(communicator, config, nullptr)) {}
Exchange::Exchange(const Communicator& communicator, const ExchangeConfig& config, const Workspace& workspace)
    : impl_(std::make_unique<Impl>(communicator, config, state_of(workspace))) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

MemoryReport Exchange::memory(const Communicator& communicator, const ExchangeConfig& config) {
  const ExchangeShape shape = check_config(config, communicator);
  return lay_out_memory(shape, config, local_device(communicator.device())).report;
}
const MemoryReport& Exchange::memory() const { return live(impl_).memory(); }

ExpertBatch Exchange::dispatch(const DispatchArgs& args, StreamView stream) {
  return live(impl_).dispatch(args, stream);
}
void Exchange::combine(const CombineArgs& args, StreamView stream) { live(impl_).combine(args, stream); }

MutableMatrixView Exchange::expert_output_buffer(DataType type) const { return live(impl_).expert_output_buffer(type); }
std::span<const std::int32_t> Exchange::host_counts(StreamView stream) { return live(impl_).host_counts(stream); }

void Exchange::check() { live(impl_).status().check(); }
DataErrors Exchange::data_errors() const { return live(impl_).status().data_errors(); }

std::string Exchange::describe_plan(std::int64_t num_tokens, std::size_t payload) const {
  return live(impl_).describe_plan(num_tokens, payload);
}
const ExchangeConfig& Exchange::config() const { return live(impl_).config(); }

}  // namespace moelink
