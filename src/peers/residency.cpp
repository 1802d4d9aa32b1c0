#include "peers/residency.hpp"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>

#include "base/text.hpp"
#include "moelink/error.hpp"
#include "runtime/device_properties.hpp"

namespace moelink {
namespace {

struct Entry {
  int ordinal;
  const void* rank;  // identity of the rank: its communicator's state
  double sms;
};

struct Ledger {
  std::mutex mutex;
  std::list<Entry> entries;

  static Ledger& instance() {
    static Ledger ledger;
    return ledger;
  }

  /// SMs that the ranks on a device may occupy together: each counts with its largest entry.
  [[nodiscard]] double occupied_sms(int ordinal) const {
    std::map<const void*, double> largest;
    for (const Entry& entry : entries) {
      if (entry.ordinal == ordinal) {
        largest[entry.rank] = std::max(largest[entry.rank], entry.sms);
      }
    }
    double sum = 0;
    for (const auto& [rank, sms] : largest) {
      sum += sms;
    }
    return sum;
  }
};

double sms_of_largest(std::initializer_list<ResidencyNeed> kernels) {
  double sms = 0;
  for (const ResidencyNeed& kernel : kernels) {
    sms = std::max(sms, static_cast<double>(kernel.blocks) / kernel.blocks_per_sm);
  }
  return sms;
}

int ranks_on_device_of(const Communicator& communicator) {
  const auto& ranks = communicator.topology().ranks();
  const RankInfo& mine = communicator.topology().rank(communicator.rank());
  return static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [&](const RankInfo& other) {
    return other.process_token == mine.process_token && other.device == mine.device;
  }));
}

}  // namespace

ResidencyClaim::ResidencyClaim(const Communicator& communicator, const std::string& what,
                               std::initializer_list<ResidencyNeed> kernels) {
  const Device device = communicator.device();
  if (device.is_host()) {
    return;
  }
  const double num_sms = DeviceProperties::of(device).num_sms;
  const double sms = sms_of_largest(kernels);
  Ledger& ledger = Ledger::instance();
  const std::scoped_lock lock(ledger.mutex);
  const auto entry = ledger.entries.insert(ledger.entries.end(), {device.ordinal(), &communicator.state(), sms});
  if (const double occupied = ledger.occupied_sms(device.ordinal()); occupied > num_sms) {
    ledger.entries.erase(entry);
    throw Error(ErrorCode::capacity,
                text(what, " of rank ", communicator.rank(), " may have blocks waiting on ", sms,
                     " SMs; with the other ranks on ", device.name(), " that is ", occupied, " of its ", num_sms,
                     " SMs, and ranks that cannot run at the same time would wait for each other for ever; lower "
                     "max_blocks, or put fewer ranks on the device"));
  }
  entry_ = std::shared_ptr<void>(&*entry, [entry](void*) {
    Ledger& owner = Ledger::instance();
    const std::scoped_lock release(owner.mutex);
    owner.entries.erase(entry);
  });
}

int fair_share_of_blocks(const Communicator& communicator, int blocks_per_sm) {
  const int num_sms = DeviceProperties::of(communicator.device()).num_sms;
  return std::max(1, num_sms * blocks_per_sm / ranks_on_device_of(communicator));
}

}  // namespace moelink
