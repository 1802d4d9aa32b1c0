#include "comm/meet.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>

#include "comm/expect_error.hpp"
#include "comm/loopback_group.hpp"
#include "comm/process_traces.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using testing::Door;
using testing::expect_error;

constexpr auto kDeadline = 20s;

/// What a caller might bring: an all-gather over threads.
class SharedGather {
 public:
  explicit SharedGather(int size) : size_(size), arrived_(size) {}

  AllGatherFunction of(int rank) {
    return [this, rank](std::span<const std::byte> mine, std::span<std::byte> all) {
      {
        const std::scoped_lock lock(mutex_);
        shared_.resize(mine.size() * static_cast<std::size_t>(size_));
        std::memcpy(shared_.data() + mine.size() * static_cast<std::size_t>(rank), mine.data(), mine.size());
      }
      arrived_.arrive_and_wait();
      std::memcpy(all.data(), shared_.data(), all.size());
      arrived_.arrive_and_wait();
    };
  }

 private:
  const int size_;
  std::barrier<> arrived_;
  std::mutex mutex_;
  std::vector<std::byte> shared_;
};

/// Runs body(rank) on `size` threads.
void on_ranks(int size, const std::function<void(int)>& body) {
  run_threads(static_cast<std::size_t>(size), [&](std::size_t r) { body(static_cast<int>(r)); });
}

TEST(MeetByAllGather, RanksTalkWithoutTheFunctionAfterwards) {
  const testing::Traces before;
  SharedGather gather(5);
  std::atomic<bool> constructed{false};
  on_ranks(5, [&](int rank) {
    const auto shared = gather.of(rank);
    const Communicator comm(rank, 5,
                            [&](std::span<const std::byte> mine, std::span<std::byte> all) {
                              EXPECT_FALSE(constructed);
                              shared(mine, all);
                            },
                            {.device = Device::host(), .deadline = kDeadline});
    comm.barrier();
    constructed = true;
    const auto all = comm.all_gather(std::as_bytes(std::span(&rank, 1)));
    ASSERT_EQ(all.size(), 5U);
    EXPECT_EQ(all[3][0], std::byte{3});
    EXPECT_EQ(comm.topology().size(), 5);
    comm.barrier();
  });
  EXPECT_TRUE(testing::back_to(before));
}

TEST(MeetByAllGather, FunctionThatMixesRanksIsNoticed) {
  SharedGather gather(3);
  on_ranks(3, [&](int rank) {
    const auto rotated = gather.of((rank + 1) % 3);
    expect_error(ErrorCode::mismatch, {"in the place of rank 0", "rank 2"},
                 [&] { (void)meet_by_all_gather(rank, 3, rotated, {}, kDeadline); });
  });
}

TEST(MeetByAllGather, Rank0ThatCannotListenIsAnErrorOnEveryRank) {
  const Door taken;
  Environment environment;
  environment.socket_interface = "lo";
  environment.port = taken.address.port();
  SharedGather gather(3);
  on_ranks(3, [&](int rank) {
    expect_error(ErrorCode::system, {"rank 0 cannot listen", "in use"},
                 [&] { (void)meet_by_all_gather(rank, 3, gather.of(rank), environment, kDeadline); });
  });
}

TEST(MeetByAllGather, ErrorsOfTheFunctionPassThrough) {
  const AllGatherFunction broken = [](auto, auto) { throw std::runtime_error("no carrier"); };
  EXPECT_THROW((void)meet_by_all_gather(1, 2, broken, {}, kDeadline), std::runtime_error);
}

TEST(MeetByAllGather, BadRankIsRefused) {
  const AllGatherFunction unused = [](auto, auto) {};
  expect_error(ErrorCode::invalid_argument, {"rank 2 of 2"},
               [&] { (void)meet_by_all_gather(2, 2, unused, {}, kDeadline); });
  expect_error(ErrorCode::invalid_argument, {"no function"},
               [&] { (void)meet_by_all_gather(0, 2, {}, {}, kDeadline); });
}

Launch launch_of(int rank, int size, const std::string& test) {
  Launch launch;
  launch.launcher = "a test";
  launch.rank = rank;
  launch.size = size;
  launch.local_size = size;
  launch.job = test + std::to_string(::getpid());
  return launch;
}

TEST(MeetByLauncher, OneMachineNeedsNoAddress) {
  for (int repetition = 0; repetition < 2; ++repetition) {  // the name must be free again
    on_ranks(4, [](int rank) {
      const auto b = meet_by_launcher(launch_of(rank, 4, "unix"), {}, kDeadline);
      b->barrier("meet", kDeadline);
    });
  }
}

TEST(MeetByLauncher, SeveralMachinesWithoutAddressSayWhatToSet) {
  Launch launch = launch_of(3, 8, "nodes");
  launch.local_size = 4;
  expect_error(ErrorCode::invalid_argument, {"8 ranks", "4 on this machine", "MASTER_ADDR"},
               [&] { (void)meet_by_launcher(launch, {}, kDeadline); });
}

TEST(MeetByLauncher, AddressWithoutPortOrJobSaysWhatToSet) {
  Launch launch = launch_of(0, 2, "");
  launch.job = "";
  launch.address = "127.0.0.1";
  expect_error(ErrorCode::invalid_argument, {"MASTER_PORT"}, [&] { (void)meet_by_launcher(launch, {}, kDeadline); });
}

int free_port() { return Door().address.port(); }

TEST(MeetByLauncher, ChosenInterfaceCarriesTheGroup) {
  Environment environment;
  environment.socket_interface = "lo";
  environment.port = free_port();
  on_ranks(3, [&](int rank) {
    Launch launch = launch_of(rank, 3, "lo");
    launch.address = "localhost";
    launch.port = 1;  // MOELINK_PORT goes first
    meet_by_launcher(launch, environment, kDeadline)->barrier("meet", kDeadline);
  });
}

TEST(MeetByLauncher, UnknownInterfaceIsRefusedWithThoseThatExist) {
  Environment environment;
  environment.socket_interface = "nosuch0";
  Launch launch = launch_of(0, 2, "nosuch");
  launch.address = "127.0.0.1";
  launch.port = free_port();
  expect_error(ErrorCode::invalid_argument, {"nosuch0", " lo"},
               [&] { (void)meet_by_launcher(launch, environment, kDeadline); });
}

TEST(MeetByLauncher, TakenPortSaysWhatToSet) {
  const Door taken;
  Launch launch = launch_of(0, 2, "taken");
  launch.address = "127.0.0.1";
  launch.port = taken.address.port();
  expect_error(ErrorCode::system, {"in use", "MOELINK_PORT"}, [&] { (void)meet_by_launcher(launch, {}, kDeadline); });
}

}  // namespace
}  // namespace moelink
