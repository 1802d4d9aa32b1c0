#include "moelink/communicator.hpp"

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "comm/communicator_state.hpp"
#include "comm/launcher.hpp"
#include "comm/meet.hpp"
#include "comm/run_threads.hpp"
#include "comm/thread_bootstrap.hpp"

namespace moelink {

Communicator Communicator::single(Device device) {
  return Communicator(make_communicator_state(std::move(ThreadBootstrap::make_group(1).front()),
                                              DeviceChoice{device, std::nullopt}, Environment::get().node,
                                              effective_deadline({})));
}

std::vector<Communicator> Communicator::in_process(int size, const InProcessOptions& options) {
  if (size < 1) {
    throw Error(ErrorCode::invalid_argument, text("in_process() of ", size, " ranks; pass a number of at least 1"));
  }
  for (const int ordinal : options.devices) {
    if (ordinal < 0 || ordinal >= Device::cuda_count()) {
      throw Error(ErrorCode::invalid_argument,
                  text("in_process() on CUDA device ", ordinal, "; this process can use ", Device::cuda_count(),
                       " CUDA devices (leave `devices` empty for the host)"));
    }
  }
  const auto deadline = effective_deadline(options.deadline);
  auto bootstraps = ThreadBootstrap::make_group(size);
  std::vector<std::shared_ptr<State>> states(bootstraps.size());
  run_threads(bootstraps.size(), [&](std::size_t r) {
    const Device device =
        options.devices.empty() ? Device::host() : Device::cuda(options.devices[r % options.devices.size()]);
    states[r] = make_communicator_state(std::move(bootstraps[r]), DeviceChoice{device, std::nullopt},
                                        Environment::get().node, deadline);
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
  const Launch chosen = launch.value_or(Launch{});
  return Communicator(make_communicator_state(meet_by_launcher(chosen, environment, deadline),
                                              DeviceChoice{options.device, chosen.local_rank}, environment.node,
                                              deadline));
}

Communicator::Communicator(int rank, int size, const AllGatherFunction& all_gather, const Options& options) {
  const Environment& environment = Environment::get();
  const auto deadline = effective_deadline(options.deadline);
  state_ = make_communicator_state(meet_by_all_gather(rank, size, all_gather, environment, deadline),
                                   DeviceChoice{options.device, std::nullopt}, environment.node, deadline);
}

std::chrono::milliseconds Communicator::deadline_of(const Options& options) {
  return effective_deadline(options.deadline);
}

int Communicator::rank() const noexcept { return state_->bootstrap->rank(); }
int Communicator::size() const noexcept { return state_->bootstrap->size(); }
Device Communicator::device() const noexcept { return state_->device; }
const Topology& Communicator::topology() const noexcept { return state_->topology; }
std::chrono::milliseconds Communicator::deadline() const noexcept { return state_->deadline; }

void Communicator::barrier() const { state_->bootstrap->barrier("barrier", state_->deadline); }

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> mine) const {
  return state_->bootstrap->all_gather("all_gather", mine, state_->deadline);
}

void Communicator::check() const { state_->bootstrap->faults().check(); }

void Communicator::abort(std::string_view reason) const noexcept {
  constexpr std::size_t kLongest = 1000;
  state_->bootstrap->abort(
      {ErrorCode::aborted, rank(), text("rank ", rank(), " called abort(): ", reason.substr(0, kLongest))});
}

}  // namespace moelink
