#include "exchange/workspace.hpp"

#include "base/moved_from.hpp"
#include "base/text.hpp"
#include "exchange/local_kernels.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

std::shared_ptr<Workspace::State> make_state(const Communicator& communicator,
                                             const std::vector<ExchangeConfig>& configs) {
  if (configs.empty()) {
    throw Error(ErrorCode::invalid_argument, "a Workspace needs the configurations that will share it, got none");
  }
  const LocalDevice device = local_device(communicator.device());
  i64 size_bytes = 0;
  i64 metadata_bytes = 0;
  for (const ExchangeConfig& config : configs) {
    const DeviceLayout layout = lay_out_memory(check_config(config, communicator), config, device).device;
    size_bytes = max_of(size_bytes, layout.total_bytes);
    metadata_bytes = max_of(metadata_bytes, layout.metadata_bytes);
  }
  return std::make_shared<Workspace::State>(communicator.device(), size_bytes, metadata_bytes);
}

}  // namespace

Workspace::State::State(Device device, i64 size_bytes, i64 metadata_bytes)
    : memory_(device, static_cast<std::size_t>(size_bytes)) {
  constexpr unsigned char kNoRow = 0xff;  // every byte of -1, the row of an entry that has none
  Stream stream(device, {.num_threads = 1});
  fill_bytes(memory_.data(), kNoRow, static_cast<std::size_t>(metadata_bytes), stream);
  fill_bytes(memory_.data(), 0, static_cast<std::size_t>(DeviceLayout::kControlBytes), stream);
  stream.synchronize();
}

Workspace::Workspace(const Communicator& communicator, const std::vector<ExchangeConfig>& configs)
    : state_(make_state(communicator, configs)) {}

Device Workspace::device() const { return not_moved_from(state_, "Workspace").memory().device(); }

std::int64_t Workspace::size_bytes() const {
  return static_cast<i64>(not_moved_from(state_, "Workspace").memory().size_bytes());
}

}  // namespace moelink
