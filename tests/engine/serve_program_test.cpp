// moelink-serve as processes: signals, and a rank that is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "engine/model_folder.hpp"
#include "engine/raw_client.hpp"

namespace moelink::engine {
namespace {

using testing::RawClient;

constexpr std::chrono::seconds kLongest{40};

/// One process of the program; killed at the end, if it still runs.
class Process {
 public:
  /// `variables`: "NAME=value", before those of this process.
  Process(const std::vector<std::string>& flags, const std::vector<std::string>& variables) {
    const std::string folder = testing::data_folder("tiny-qwen3-moe");
    std::vector<std::string> words = {MOELINK_SERVE_PROGRAM, folder, "--device", "host",
                                      "--threads",           "1",    "--port",   "0"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<std::string> environment = variables;
    for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
    EXPECT_EQ(posix_spawn(&id_, MOELINK_SERVE_PROGRAM, &actions, nullptr, pointers(words).data(),
                          pointers(environment).data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    stderr_ = pipe[0];
  }
  ~Process() {
    if (running_) {
      signal(SIGKILL);
      (void)wait();
    }
    ::close(stderr_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { EXPECT_EQ(::kill(id_, number), 0); }

  /// The port that rank 0 says it listens at.
  [[nodiscard]] int port() {
    const std::string words = "http://127.0.0.1:";
    while (said_.find(words) == std::string::npos && read_more()) {
    }
    const std::size_t at = said_.find(words);
    EXPECT_NE(at, std::string::npos) << said_;
    return at == std::string::npos ? 0 : std::stoi(said_.substr(at + words.size()));
  }

  /// The exit code, or -1 if a signal ended it or it does not end.
  [[nodiscard]] int wait() {
    const auto end = std::chrono::steady_clock::now() + kLongest;
    int status = 0;
    while (::waitpid(id_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    running_ = false;
    while (read_more()) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] const std::string& said() const { return said_; }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> all;
    for (std::string& word : words) all.push_back(word.data());
    all.push_back(nullptr);
    return all;
  }
  bool read_more() {
    pollfd ready{.fd = stderr_, .events = POLLIN, .revents = 0};
    std::array<char, 4096> part{};
    if (::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kLongest).count())) != 1) return false;
    const ssize_t size = ::read(stderr_, part.data(), part.size());
    if (size <= 0) return false;
    said_.append(part.data(), static_cast<std::size_t>(size));
    return true;
  }

  pid_t id_ = 0;
  int stderr_ = -1;
  bool running_ = true;
  std::string said_;
};

/// Ranks as a launcher starts them, one process each.
std::list<Process> start_ranks(int size) {
  const std::string job = "moelink-serve-test-" + std::to_string(::getpid()) + "-" +
                          ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::list<Process> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const std::string r = std::to_string(rank);
    const std::string n = std::to_string(size);
    ranks.emplace_back(
        std::vector<std::string>{},
        std::vector<std::string>{"RANK=" + r, "LOCAL_RANK=" + r, "WORLD_SIZE=" + n, "LOCAL_WORLD_SIZE=" + n,
                                 "TORCHELASTIC_RUN_ID=" + job, "TORCHELASTIC_RESTART_COUNT=0", "MOELINK_DEADLINE=20"});
  }
  return ranks;
}

const char* const kGreedy =
    R"({"prompt": "def forward(self, input):", "max_tokens": 24, "temperature": 0, "ignore_eos": true})";
const char* const kEndless =
    R"({"prompt": "def forward(self, input):", "max_tokens": 4000, "temperature": 0, "ignore_eos": true, "stream": true})";

void expect_the_references_text(int port) {
  const RawClient client(port);
  client.post(kGreedy);
  const std::string answer = client.read_until("total_tokens");
  EXPECT_NE(answer.find("hich expertdispatch maximum p"), std::string::npos) << answer;
}

TEST(ServeProgram, SigtermEndsItWithExitCode0) {
  Process program({"--ranks", "2"}, {});
  expect_the_references_text(program.port());
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.said();
}

TEST(ServeProgram, RanksInProcessesAnswerAndEndTogether) {
  std::list<Process> ranks = start_ranks(3);
  const int port = ranks.front().port();
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back([port] { expect_the_references_text(port); });
  for (std::thread& client : clients) client.join();
  for (const Process& rank : ranks) rank.signal(SIGTERM);  // as a launcher does
  for (Process& rank : ranks) EXPECT_EQ(rank.wait(), 0) << rank.said();
}

TEST(ServeProgram, ARankThatIsKilledEndsStreamsAndAllProcessesWithAnError) {
  std::list<Process> ranks = start_ranks(3);
  const RawClient client(ranks.front().port());
  client.post(kEndless);
  EXPECT_NE(client.read_until("data: ").find("data: "), std::string::npos);
  ranks.back().signal(SIGKILL);
  const std::string rest = client.read_until("[DONE]");
  EXPECT_NE(rest.find("\"error\""), std::string::npos);
  EXPECT_NE(rest.find("rank 2"), std::string::npos) << rest;
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
  EXPECT_EQ(ranks.back().wait(), -1);
  ranks.pop_back();
  for (Process& rank : ranks) {
    EXPECT_EQ(rank.wait(), 1) << rank.said();
    EXPECT_NE(rank.said().find("rank 2"), std::string::npos) << rank.said();
  }
}

TEST(ServeProgram, WhenRank0IsKilledTheOthersEndWithAnError) {
  std::list<Process> ranks = start_ranks(2);
  EXPECT_NE(ranks.front().port(), 0);
  ranks.front().signal(SIGKILL);
  EXPECT_EQ(ranks.back().wait(), 1) << ranks.back().said();
  EXPECT_NE(ranks.back().said().find("rank 0"), std::string::npos) << ranks.back().said();
}

TEST(ServeProgram, AFlagThatCannotBeFollowedIsExitCode2) {
  Process program({"--grace", "-1"}, {});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_NE(program.said().find("--grace"), std::string::npos) << program.said();
}

}  // namespace
}  // namespace moelink::engine
