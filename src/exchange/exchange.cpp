#include "moelink/exchange.hpp"

#include "base/moved_from.hpp"
#include "exchange/exchange_impl.hpp"
#include "exchange/local_kernels.hpp"

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

DispatchTicket Exchange::dispatch_send(const DispatchArgs& args, StreamView stream) {
  return DispatchTicket(live(impl_).dispatch_send(args, stream));
}
ExpertBatch Exchange::dispatch_receive(DispatchTicket ticket, StreamView stream) {
  return live(impl_).dispatch_receive(ticket.call_, stream);
}
CombineTicket Exchange::combine_send(const CombineArgs& args, StreamView stream) {
  return CombineTicket(live(impl_).combine_send(args, stream));
}
void Exchange::combine_receive(CombineTicket ticket, StreamView stream) {
  live(impl_).combine_receive(ticket.call_, stream);
}

MutableMatrixView Exchange::expert_output_buffer(DataType type) const { return live(impl_).expert_output_buffer(type); }
std::span<const std::int32_t> Exchange::host_counts(StreamView stream) { return live(impl_).host_counts(stream); }

void Exchange::check() { live(impl_).check(); }
DataErrors Exchange::data_errors() const { return live(impl_).data_errors(); }

std::string Exchange::describe_plan(std::int64_t num_tokens, std::size_t payload) const {
  return live(impl_).describe_plan(num_tokens, payload);
}
const ExchangeConfig& Exchange::config() const { return live(impl_).config(); }
Mode Exchange::mode() const { return live(impl_).shape().mode; }
std::int64_t Exchange::first_expert() const { return live(impl_).shape().first_expert; }

}  // namespace moelink
