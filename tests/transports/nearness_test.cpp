// The processors that a proxy's thread stays on.
#include "transports/proxy/nearness.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "support/temporary_directory.hpp"

namespace moelink::test {
namespace {

using namespace std::chrono_literals;

TEST(Nearness, ListsOfProcessorsAreReadAsLinuxWritesThem) {
  EXPECT_EQ(processors_of_list("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(processors_of_list("7"), std::vector<int>{7});
  for (const char* bad : {"", "x", "3-", "1,,2", "1;2", "-4", "99999999999"}) {
    EXPECT_EQ(processors_of_list(bad), std::vector<int>()) << bad;
  }
}

TEST(Nearness, AThreadStaysNearADeviceOnlyWhereItMayRunThere) {
  const auto processors_of = [](std::thread& thread) {
    cpu_set_t set;
    EXPECT_EQ(pthread_getaffinity_np(thread.native_handle(), sizeof(set), &set), 0);
    std::vector<int> processors;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) processors.push_back(i);
    }
    return processors;
  };
  const TemporaryDirectory folder;
  std::atomic<bool> end{false};
  std::thread thread([&] {
    while (!end) std::this_thread::sleep_for(1ms);
  });
  const std::vector<int> before = processors_of(thread);
  EXPECT_FALSE(keep_near(thread, ""));
  EXPECT_FALSE(keep_near(thread, folder.path()));  // nothing said
  std::ofstream(folder.path() / "local_cpulist") << "1000-1001\n";
  EXPECT_FALSE(keep_near(thread, folder.path()));
  EXPECT_EQ(processors_of(thread), before);
  std::ofstream(folder.path() / "local_cpulist") << before.back() << "\n";
  EXPECT_EQ(keep_near(thread, folder.path()), before.size() > 1);
  EXPECT_EQ(processors_of(thread), std::vector<int>{before.back()});
  end = true;
  thread.join();
}

}  // namespace
}  // namespace moelink::test
