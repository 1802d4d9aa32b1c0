#include "moelink/communicator.hpp"

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/moved_from.hpp"
#include "base/text.hpp"
#include "comm/communicator_state.hpp"
#include "comm/launcher.hpp"
#include "comm/meet.hpp"
#include "comm/run_threads.hpp"
#include "comm/thread_bootstrap.hpp"

namespace moelink {

Communicator Communicator::single(Device device) {
  return Communicator(make_communicator_state(std::move(ThreadBootstrap::make_group(1).front()),
                                              DeviceChoice{device, std::nullopt}, effective_node(0),
                                              effective_deadline({})));
}

std::vector<Communicator> Communicator::in_process(int size, const InProcessOptions& options) {
  constexpr int kMostRanks = 1024;  // each is a thread at times, and each knows the links of every other
  if (size < 1 || size > kMostRanks) {
    throw Error(ErrorCode::invalid_argument,
                text("in_process() of ", size, " ranks; pass a number from 1 to ", kMostRanks));
  }
  for (const int ordinal : options.devices) {
    if (ordinal < 0 || ordinal >= Device::cuda_count()) {
      throw Error(ErrorCode::invalid_argument,
                  text("in_process() on CUDA device ", ordinal, "; this process can use ", Device::cuda_count(),
                       " CUDA devices (leave `devices` empty for the host)"));
    }
  }
  const auto deadline = effective_deadline(options.deadline);
  const NodeChoice node = effective_node(options.ranks_per_node);
  auto bootstraps = ThreadBootstrap::make_group(size);
  std::vector<std::shared_ptr<State>> states(bootstraps.size());
  run_threads(bootstraps.size(), [&](std::size_t r) {
    const Device device =
        options.devices.empty() ? Device::host() : Device::cuda(options.devices[r % options.devices.size()]);
    states[r] = make_communicator_state(std::move(bootstraps[r]), DeviceChoice{device, std::nullopt}, node, deadline);
  });
  std::vector<Communicator> communicators;
  communicators.reserve(states.size());
  for (auto& state : states) {
    communicators.push_back(Communicator(std::move(state)));
  }
  return communicators;
}

Communicator Communicator::from_environment(const Options& options) {
  const auto launch = Launch::read(&Environment::process);
  const Environment& environment = Environment::get();
  const auto deadline = effective_deadline(options.deadline);
  const NodeChoice node = effective_node(options.ranks_per_node);
  const Launch chosen = launch.value_or(Launch{});
  return Communicator(make_communicator_state(meet_by_launcher(chosen, environment, deadline),
                                              DeviceChoice{options.device, chosen.local_rank}, node, deadline));
}

Communicator::Communicator(int rank, int size, const AllGatherFunction& all_gather, const Options& options) {
  const Environment& environment = Environment::get();
  const auto deadline = effective_deadline(options.deadline);
  const NodeChoice node = effective_node(options.ranks_per_node);
  state_ = make_communicator_state(meet_by_all_gather(rank, size, all_gather, environment, deadline),
                                   DeviceChoice{options.device, std::nullopt}, node, deadline);
}

std::chrono::milliseconds Communicator::deadline_of(const Options& options) {
  return effective_deadline(options.deadline);
}

Communicator::State& Communicator::state() const { return not_moved_from(state_, "Communicator"); }

int Communicator::rank() const { return state().bootstrap->rank(); }
int Communicator::size() const { return state().bootstrap->size(); }
Device Communicator::device() const { return state().device; }
const Topology& Communicator::topology() const { return state().topology; }
std::chrono::milliseconds Communicator::deadline() const { return state().deadline; }

void Communicator::barrier() const { state().bootstrap->barrier("barrier", state().deadline); }

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> mine) const {
  return state().bootstrap->all_gather("all_gather", mine, state().deadline);
}

void Communicator::check() const { state().bootstrap->faults().check(); }

void Communicator::abort(std::string_view reason) const noexcept {
  if (state_ == nullptr) return;  // moved from: the group is another object's to end
  constexpr std::size_t kLongest = 1000;
  state().bootstrap->abort(
      {ErrorCode::aborted, rank(), text("rank ", rank(), " called abort(): ", reason.substr(0, kLongest))});
}

}  // namespace moelink
