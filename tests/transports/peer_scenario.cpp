#include "peer_scenario.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>

#include "leftovers.hpp"
#include "moelink/buffer.hpp"
#include "moelink/error.hpp"
#include "moelink/stream.hpp"
#include "transports/allocate.hpp"
#include "transports/make_memory.hpp"

namespace moelink::test {
namespace {

class Scenario {
 public:
  Scenario(ProcessMeeting& meeting, int rank, MemoryKind kind, Device device, std::string socket_directory)
      : meeting_(meeting),
        rank_(rank),
        device_(device),
        meet_(meeting, rank),
        transport_(make_memory(kind, device)),
        stream_(device, {.num_threads = 1}) {
    options_.socket_directory = std::move(socket_directory);
    options_.deadline = std::chrono::seconds(5);
    options_.farewell_deadline = std::chrono::seconds(2);
  }

  int failures() const { return failures_; }

  void exchange() {
    for (int round = 0; round < 2; ++round) {
      SymmetricBuffer first = allocate(100'000);
      SymmetricBuffer second = allocate(64);
      check_zero(first);
      meet_.barrier();
      write_everybody(first, 1);
      write_everybody(second, 2);
      meet_.barrier();
      check_everybody(first, 1);
      check_everybody(second, 2);
      meet_.barrier();
      (rank_ % 2 == 0 || transport_->lifetime() == Lifetime::owner ? first : second) = SymmetricBuffer();
    }
  }

  void outlive() {
    SymmetricBuffer buffer = allocate(4096);
    if (rank_ == 0) {
      buffer = SymmetricBuffer();
    }
    meet_.barrier();
    if (rank_ != 0) {
      write(buffer.window(), 0, rank_, 77);
      expect(read(buffer.window(), 0, rank_) == 77, "memory of an owner that left");
    }
    meet_.barrier();
  }

  void killed() {
    SymmetricBuffer buffer = allocate(4096);
    meet_.barrier();
    if (is_last()) {
      ::kill(::getpid(), SIGKILL);
    }
    ::usleep(100'000);
    if (transport_->lifetime() == Lifetime::counted) {
      write(buffer.window(), meet_.size() - 1, rank_, 5);  // the memory of the dead
    }
    buffer.abandon();
    const auto start = std::chrono::steady_clock::now();
    buffer = SymmetricBuffer();
    expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(3), "leaving within the deadline");
  }

  void late() {
    if (is_last()) {
      ::kill(::getpid(), SIGKILL);
    }
    try {
      const SymmetricBuffer buffer = allocate(4096);
      expect(false, "an error about the rank that died");
    } catch (const Error&) {
    }
  }

 private:
  [[nodiscard]] bool is_last() const { return rank_ == meet_.size() - 1; }
  SymmetricBuffer allocate(std::size_t size_bytes) {
    const std::vector<int> nodes(static_cast<std::size_t>(meet_.size()), 0);
    return SymmetricBuffer(allocate_symmetric(meet_, transport_, nodes, size_bytes, options_));
  }
  void write(const Window& window, int peer, int word, int value) {
    copy_bytes(window.at<int>(peer, 4L * word), &value, sizeof(value), stream_);
    stream_.synchronize();
  }
  [[nodiscard]] int read(const Window& window, int peer, int word) {
    int value = -1;
    copy_bytes(&value, window.at<int>(peer, 4L * word), sizeof(value), stream_);
    stream_.synchronize();
    return value;
  }
  void write_everybody(const SymmetricBuffer& buffer, int factor) {
    for (int peer = 0; peer < meet_.size(); ++peer) {
      write(buffer.window(), peer, rank_, factor * (1000 * rank_ + peer + 1));
    }
  }
  void check_everybody(const SymmetricBuffer& buffer, int factor) {
    for (int peer = 0; peer < meet_.size(); ++peer) {
      for (int writer = 0; writer < meet_.size(); ++writer) {
        expect(read(buffer.window(), peer, writer) == factor * (1000 * writer + peer + 1), "what a rank wrote");
      }
    }
  }
  void check_zero(const SymmetricBuffer& buffer) {
    for (const int word : {0, 17, 24'999}) {
      expect(read(buffer.window(), (rank_ + 1) % meet_.size(), word) == 0, "zero at first");
    }
  }
  void expect(bool condition, const char* what) {
    if (!condition) {
      std::fprintf(stderr, "rank %d: expected %s\n", rank_, what);
      ++failures_;
    }
  }

  ProcessMeeting& meeting_;
  int rank_;
  Device device_;
  ProcessRendezvous meet_;
  std::shared_ptr<MemoryTransport> transport_;
  Stream stream_;
  PeerGroupOptions options_;
  int failures_ = 0;
};

}  // namespace

int run_scenario(ProcessMeeting& meeting, int rank, MemoryKind kind, int device_ordinal, const std::string& scenario,
                 const std::string& socket_directory) {
  try {
    const Device device = device_ordinal < 0 ? Device::host() : Device::cuda(device_ordinal);
    Scenario mine(meeting, rank, kind, device, socket_directory);
    // Device memory has no name in /proc/self/maps, and the driver opens descriptors of its own when it likes.
    const Leftovers before = count_leftovers(socket_directory);
    if (scenario == "exchange") {
      mine.exchange();
    } else if (scenario == "outlive") {
      mine.outlive();
    } else if (scenario == "killed") {
      mine.killed();
    } else if (scenario == "late") {
      mine.late();
    } else {
      std::fprintf(stderr, "scenario %s does not exist\n", scenario.c_str());
      return 2;
    }
    const Leftovers after = count_leftovers(socket_directory);
    if (device.is_host() && (after.descriptors != before.descriptors || after.mappings != before.mappings)) {
      std::fprintf(stderr, "rank %d holds more than before\n", rank);
      return 3;
    }
    return mine.failures() == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 4;
  }
}

}  // namespace moelink::test
