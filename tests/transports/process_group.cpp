#include "process_group.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/system_error.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

constexpr std::size_t kBoardBytes = 256 * 1024;

}  // namespace

struct ProcessMeeting::Page {
  int size;
  std::chrono::milliseconds deadline;
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> round;
  std::byte board[kBoardBytes];
};

void ProcessMeeting::map() {
  void* data = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (data == MAP_FAILED) {
    throw system_error("mapping the meeting page failed");
  }
  page_ = static_cast<Page*>(data);
}

ProcessMeeting::ProcessMeeting(int size, std::chrono::milliseconds deadline) : fd_(::memfd_create("test-meeting", 0)) {
  if (::ftruncate(fd_.get(), sizeof(Page)) != 0) {
    throw system_error("making the meeting page failed");
  }
  map();
  page_->size = size;
  page_->deadline = deadline;
}

ProcessMeeting::ProcessMeeting(UniqueFd inherited) : fd_(std::move(inherited)) { map(); }

ProcessMeeting::~ProcessMeeting() { ::munmap(page_, sizeof(Page)); }

int ProcessMeeting::size() const noexcept { return page_->size; }

void ProcessMeeting::barrier() {
  const std::uint32_t round = page_->round.load();
  if (page_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(page_->size)) {
    page_->arrived.store(0);
    page_->round.fetch_add(1);
    return;
  }
  const auto end = std::chrono::steady_clock::now() + page_->deadline;
  while (page_->round.load() == round) {
    if (std::chrono::steady_clock::now() > end) {
      throw Error(ErrorCode::timeout, "a process of the test did not come to the rendezvous");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void ProcessMeeting::all_gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() > kBoardBytes) {
    throw Error(ErrorCode::invalid_argument, "more bytes than the board has");
  }
  std::memcpy(page_->board + mine.size() * static_cast<std::size_t>(rank), mine.data(), mine.size());
  barrier();
  std::memcpy(all.data(), page_->board, all.size());
  barrier();
}

std::vector<std::string> wait_for(const std::vector<pid_t>& children, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<std::string> results;
  for (const pid_t child : children) {
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ::kill(child, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    results.push_back(WIFSIGNALED(status)        ? "signal " + std::to_string(WTERMSIG(status))
                      : WEXITSTATUS(status) == 0 ? ""
                                                 : "exit " + std::to_string(WEXITSTATUS(status)));
  }
  return results;
}

pid_t start_peer(const ProcessMeeting& meeting, int rank, const std::string& kind, int device_ordinal,
                 const std::string& scenario, const std::string& socket_directory) {
  const std::string program = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "moelink_peer_process");
  const std::string fd = std::to_string(meeting.fd());
  const std::string rank_text = std::to_string(rank);
  const std::string device = std::to_string(device_ordinal);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program.c_str(), program.c_str(), fd.c_str(), rank_text.c_str(), kind.c_str(), device.c_str(),
            scenario.c_str(), socket_directory.c_str(), nullptr);
    std::perror(program.c_str());
    ::_exit(127);
  }
  return child;
}

}  // namespace moelink::test
