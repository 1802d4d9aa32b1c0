#include "transports/threads/registry.hpp"

#include <mutex>
#include <unordered_map>

namespace moelink {
namespace {

struct Entry {
  std::weak_ptr<MappedMemory> memory;
  int device_ordinal;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Entry> entries;
  std::uint64_t next_id = 1;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

std::uint64_t publish(const std::shared_ptr<MappedMemory>& memory, int device_ordinal) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::erase_if(all.entries, [](const auto& entry) { return entry.second.memory.expired(); });
  all.entries.emplace(all.next_id, Entry{memory, device_ordinal});
  return all.next_id++;
}

PublishedMemory find_published(std::uint64_t id) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.entries.find(id);
  return found == all.entries.end() ? PublishedMemory{}
                                    : PublishedMemory{found->second.memory.lock(), found->second.device_ordinal};
}

}  // namespace moelink
