#include "comm/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>

namespace moelink::testing {
namespace {

using Clock = std::chrono::steady_clock;

/// As execve() wants it.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

bool is_of_a_launcher(const std::string& variable) {
  for (const char* prefix :
       {"RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "MPI_", "MOELINK_", "TORCHELASTIC_"}) {
    if (variable.starts_with(prefix)) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_of_a_launcher(*entry)) {
      environment.emplace_back(*entry);
    }
  }
  for (const auto& [name, value] : variables) {
    environment.push_back(name + "=" + value);
  }
  return environment;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const Variables& variables) {
  auto words = arguments;
  auto environment = environment_with(variables);
  const auto argv = pointers_to(words);
  const auto envp = pointers_to(environment);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2() failed");
  }
  pipe_.reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(write_end.get(), STDOUT_FILENO);
    dup2(write_end.get(), STDERR_FILENO);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
}

ChildProcess::~ChildProcess() {
  if (!status_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void ChildProcess::signal(int number) const { kill(pid_, number); }

bool ChildProcess::read_output(int timeout_ms) {
  pollfd waiting{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, timeout_ms) <= 0) {
    return true;
  }
  std::array<char, 4096> buffer{};
  const ssize_t count = read(pipe_.get(), buffer.data(), buffer.size());
  output_.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return count > 0;
}

bool ChildProcess::wait_for_output(const std::string& word) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (output_.find(word) == std::string::npos) {
    if (Clock::now() >= until || !read_output(50)) {
      return false;
    }
  }
  return true;
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  while (!status_) {
    int status = 0;
    (void)read_output(5);
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      for (std::size_t before = output_.size() + 1; before != output_.size();) {
        before = output_.size();
        (void)read_output(0);
      }
    } else if (Clock::now() >= until) {
      return std::nullopt;
    }
  }
  return status_;
}

}  // namespace moelink::testing
