// What a process holds that it must give back.
#pragma once

#include <dirent.h>

#include <chrono>
#include <memory>
#include <thread>

namespace moelink::testing {

inline int count_entries(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder), &closedir);
  int count = 0;
  while (readdir(dir.get()) != nullptr) {
    ++count;
  }
  return count;
}

/// Descriptors and threads of this process.
struct Traces {
  Traces() {
    // ThreadSanitizer starts a thread of its own with the first one of ours, and keeps it.
    std::thread([] {}).join();
    descriptors = count_entries("/proc/self/fd");
    threads = count_entries("/proc/self/task");
  }
  int descriptors;
  int threads;
};

/// A joined thread may be listed for a moment longer.
inline bool back_to(const Traces& before) {
  for (int i = 0; i < 100; ++i) {
    const Traces now;
    if (now.descriptors <= before.descriptors && now.threads <= before.threads) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace moelink::testing
