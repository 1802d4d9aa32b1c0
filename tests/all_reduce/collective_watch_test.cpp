#include "all_reduce/collective_watch.hpp"

#include <gtest/gtest.h>

namespace moelink {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

bool comes_true(const std::function<bool()>& fact) {
  for (const auto until = Clock::now() + 10s; !fact(); std::this_thread::sleep_for(1ms)) {
    if (Clock::now() > until) {
      return false;
    }
  }
  return true;
}

/// A group that fails when it is told to, as a FaultBoard with a subscription does.
struct Group {
  std::atomic<std::int64_t> running_ms{0};
  std::atomic<int> num_looks{0};
  std::atomic<int> num_reports{0};
  std::atomic<int> num_aborts{0};
  CollectiveWatch* watch = nullptr;

  CollectiveWatch::Duties duties(std::chrono::milliseconds deadline) {
    return {.deadline = deadline,
            .longest_running =
                [this] {
                  ++num_looks;
                  return std::chrono::milliseconds(running_ms);
                },
            .report_late =
                [this](std::chrono::milliseconds) {
                  ++num_reports;
                  watch->group_failed();
                },
            .abort = [this] { ++num_aborts; }};
  }
};

TEST(CollectiveWatch, CallThatRunsPastTheDeadlineFailsTheGroupOnceAndIsAbortedOnce) {
  Group group;
  CollectiveWatch watch(group.duties(20ms));
  group.watch = &watch;
  group.running_ms = 20;
  EXPECT_TRUE(comes_true([&] { return group.num_looks > 3; }));
  EXPECT_EQ(group.num_reports, 0) << "the deadline had not passed";
  group.running_ms = 21;
  EXPECT_TRUE(comes_true([&] { return group.num_aborts == 1; }));
  EXPECT_EQ(group.num_reports, 1);
}

TEST(CollectiveWatch, FaultOfTheGroupAbortsLongBeforeTheDeadline) {
  Group group;
  CollectiveWatch watch(group.duties(1h));
  const auto start = Clock::now();
  watch.group_failed();
  EXPECT_TRUE(comes_true([&] { return group.num_aborts == 1; }));
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(group.num_reports, 0);
}

TEST(CollectiveWatch, LeavesAtOnceWithoutAborting) {
  Group group;
  { const CollectiveWatch watch(group.duties(1h)); }
  EXPECT_EQ(group.num_aborts, 0);
}

}  // namespace
}  // namespace moelink
