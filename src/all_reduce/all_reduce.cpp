#include "moelink/all_reduce.hpp"

#include "all_reduce/all_reduce_impl.hpp"
#include "base/moved_from.hpp"

namespace moelink {

std::string_view name_of(AllReduceAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case AllReduceAlgorithm::automatic:
      return "automatic";
    case AllReduceAlgorithm::push:
      return "push";
    case AllReduceAlgorithm::pack:
      return "pack";
    case AllReduceAlgorithm::stream:
      return "stream";
    case AllReduceAlgorithm::two_shot:
      return "two_shot";
    case AllReduceAlgorithm::nvls:
      return "nvls";
    case AllReduceAlgorithm::nccl:
      return "nccl";
  }
  return "?";
}

AllReduce::AllReduce(const Communicator& communicator, const AllReduceConfig& config)
    : impl_(std::make_unique<Impl>(communicator, config)) {}
AllReduce::~AllReduce() = default;
AllReduce::AllReduce(AllReduce&&) noexcept = default;
AllReduce& AllReduce::operator=(AllReduce&&) noexcept = default;

MemoryReport AllReduce::memory(const Communicator& communicator, const AllReduceConfig& config) {
  return Impl::memory_of(communicator, config);
}
void AllReduce::operator()(const AllReduceArgs& args, StreamView stream) {
  not_moved_from(impl_, "AllReduce").run(args, stream);
}
void AllReduce::check() { not_moved_from(impl_, "AllReduce").check(); }
std::string AllReduce::describe_plan(std::int64_t num_elements) const {
  return not_moved_from(impl_, "AllReduce").describe_plan(num_elements);
}

}  // namespace moelink
