#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "leftovers.hpp"
#include "moelink/error.hpp"
#include "transports/descriptors/exchange.hpp"
#include "transports/descriptors/message.hpp"

namespace moelink::test {
namespace {

constexpr std::chrono::seconds kLong{20};

UniqueFd file_with(int value) {
  UniqueFd fd(::memfd_create("moelink-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  return fd;
}

int value_in(const UniqueFd& fd) {
  int value = -1;
  EXPECT_EQ(::pread(fd.get(), &value, sizeof(value), 0), static_cast<ssize_t>(sizeof(value)));
  return value;
}

UniqueFd connect_to(const DescriptorAddress& address) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address.path.data(), sizeof(to.sun_path));
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

TEST(DescriptorExchange, EveryRankGetsEveryOthersDescriptor) {
  const TestDirectory directory;
  const Leftovers before = count_leftovers(directory.path());
  {
    constexpr int kRanks = 5;
    std::vector<std::unique_ptr<DescriptorExchange>> exchanges;
    for (int rank = 0; rank < kRanks; ++rank) {
      exchanges.push_back(std::make_unique<DescriptorExchange>(rank, directory.path(), kLong));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<DescriptorExchange::Peer> peers;
        for (int peer = kRanks - 1; peer >= 0; --peer) {
          if (peer != rank) {
            peers.push_back({peer, exchanges[static_cast<std::size_t>(peer)]->address()});
          }
        }
        const UniqueFd mine = file_with(rank * 11);
        const std::vector<UniqueFd> got = exchanges[static_cast<std::size_t>(rank)]->run(mine.get(), peers, peers);
        for (std::size_t i = 0; i < peers.size(); ++i) {
          EXPECT_EQ(value_in(got[i]), peers[i].rank * 11);
          EXPECT_NE(::fcntl(got[i].get(), F_GETFD) & FD_CLOEXEC, 0);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_EQ(count_leftovers(directory.path()), before);
}

TEST(DescriptorExchange, StrangersAreDroppedWithoutDisturbingIt) {
  const TestDirectory directory;
  DescriptorExchange mine(0, directory.path(), kLong);
  DescriptorExchange theirs(1, directory.path(), kLong);
  const UniqueFd silent = connect_to(mine.address());
  const UniqueFd garbage = connect_to(mine.address());
  ASSERT_EQ(::send(garbage.get(), "GET / HTTP/1.1", 14, 0), 14);
  const UniqueFd wrong_nonce = connect_to(mine.address());
  const UniqueFd bait = file_with(666);
  send_descriptor(wrong_nonce.get(), {.sender = 1, .nonce = mine.address().nonce + 1}, bait.get());
  const UniqueFd wrong_rank = connect_to(mine.address());
  send_descriptor(wrong_rank.get(), {.sender = 7, .nonce = mine.address().nonce}, bait.get());
  { const UniqueFd hangs_up = connect_to(mine.address()); }

  std::thread peer([&] {
    const UniqueFd file = file_with(42);
    const DescriptorExchange::Peer to{0, mine.address()};
    EXPECT_EQ(value_in(theirs.run(file.get(), {&to, 1}, {&to, 1})[0]), 41);
  });
  const UniqueFd file = file_with(41);
  const DescriptorExchange::Peer to{1, theirs.address()};
  EXPECT_EQ(value_in(mine.run(file.get(), {&to, 1}, {&to, 1})[0]), 42);
  peer.join();
}

TEST(DescriptorExchange, AMissingRankIsNamedWithinTheDeadline) {
  const TestDirectory directory;
  DescriptorExchange mine(0, directory.path(), std::chrono::milliseconds(100));
  const DescriptorExchange silent(3, directory.path(), kLong);
  const UniqueFd file = file_with(1);
  const DescriptorExchange::Peer to{3, silent.address()};
  const auto start = std::chrono::steady_clock::now();
  try {
    (void)mine.run(file.get(), {&to, 1}, {&to, 1});
    FAIL() << "nobody sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_NE(std::string(error.what()).find("rank(s) 3"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(DescriptorExchange, ASocketThatThisRankDoesNotSeeSaysWhatToDo) {
  const TestDirectory directory;
  DescriptorExchange mine(0, directory.path(), kLong);
  DescriptorExchange::Peer elsewhere{4, {}};
  std::strcpy(elsewhere.address.path.data(), "/nonexistent/moelink/socket");
  try {
    (void)mine.run(0, {&elsewhere, 1}, {});
    FAIL() << "nothing is there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 4"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("MOELINK_SOCKET_DIR"), std::string::npos) << error.what();
  }
}

TEST(DescriptorExchange, APathTooLongForASocketIsRefusedAndLeavesNothing) {
  const TestDirectory directory;
  std::filesystem::create_directories(directory.path());
  const std::string longest = directory.path() + "/" + std::string(90, 'd');
  EXPECT_THROW(DescriptorExchange(0, longest, kLong), Error);
  EXPECT_FALSE(std::filesystem::exists(longest));
}

TEST(PrivateDirectory, OthersCannotEnterIt) {
  const TestDirectory directory;
  const PrivateDirectory mine(directory.path(), Deadline::after(kLong));
  struct stat status {};
  ASSERT_EQ(::stat(directory.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
}

TEST(PrivateDirectory, AParentThatOthersCanEnterIsRefused) {
  const TestDirectory directory;
  ASSERT_EQ(::mkdir(directory.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  try {
    const PrivateDirectory mine(directory.path(), Deadline::after(kLong));
    FAIL() << "anybody could have put a socket there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("0755"), std::string::npos) << error.what();
  }
}

TEST(PrivateDirectory, AParentThatIsALinkIsRefused) {
  const TestDirectory directory;
  ASSERT_EQ(::symlink("/tmp", directory.path().c_str()), 0);
  EXPECT_THROW(PrivateDirectory(directory.path(), Deadline::after(kLong)), Error);
}

TEST(PrivateDirectory, WhatAKilledProcessLeftIsRemovedByTheNext) {
  const TestDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    const DescriptorExchange doomed(0, directory.path(), kLong);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_GT(count_leftovers(directory.path()).files, 0);
  { const PrivateDirectory next(directory.path(), Deadline::after(kLong)); }
  EXPECT_EQ(count_leftovers(directory.path()).files, 0);
}

TEST(PrivateDirectory, TheLivingAreLeftAlone) {
  const TestDirectory directory;
  const DescriptorExchange living(0, directory.path(), kLong);
  { const PrivateDirectory next(directory.path(), Deadline::after(kLong)); }
  EXPECT_TRUE(std::filesystem::exists(living.address().path.data()));
}

TEST(PrivateDirectory, ManyAtOnceDoNotRemoveEachOther) {
  const TestDirectory directory;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const PrivateDirectory mine(directory.path(), Deadline::after(kLong));
        EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(mine.file_path()).parent_path()));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(count_leftovers(directory.path()).files, 0);
}

}  // namespace
}  // namespace moelink::test
