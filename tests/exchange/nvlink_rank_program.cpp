// One rank of an Exchange over processes:
//
//   nvlink_rank_program loop COUNT
//   nvlink_rank_program queue COUNT
//
// joins by the environment (a test that starts processes, or mpirun), says "ready", dispatches and combines COUNT
// times. loop compares every output with the reference; 0 if all are right. queue has four Exchanges on one stream, and
// a barrier after each round, but never asks whether there was a fault. An Error is printed and becomes exit status 3,
// anything else 1.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "exchange/nvlink_calls.hpp"
#include "moelink/error.hpp"

namespace {

using namespace moelink;

void say(const std::string& words) {
  std::puts(words.c_str());
  std::fflush(stdout);
}

test::RanksShape shape_of(const Communicator& communicator) {
  return {.num_ranks = communicator.size(),
          .tp_size = communicator.size() % 2 == 0 ? 2 : 1,
          .num_experts = 10,
          .top_k = 3,
          .hidden = 64,
          .max_tokens = 250,
          .ranks_per_node = Environment::get().ranks_per_node};
}

int queue(const Communicator& communicator, int count) {
  const test::RanksShape shape = shape_of(communicator);
  const std::vector<test::RanksCall> calls = test::clean_calls(shape, 1);
  const auto stream = std::make_shared<Stream>(Device::host(), Stream::Options{.num_threads = 1});
  std::vector<std::unique_ptr<test::CallLoop>> loops;
  for (int i = 0; i < 4; ++i) {
    loops.push_back(std::make_unique<test::CallLoop>(communicator, shape, calls, stream));
  }
  communicator.barrier();
  say("ready");
  for (int call = 0; call < count; ++call) {
    for (const auto& loop : loops) loop->enqueue(0, 0, false);
    stream->synchronize();
    communicator.barrier();
  }
  return 0;
}

int loop(const Communicator& communicator, int count) {
  const test::RanksShape shape = shape_of(communicator);
  const std::vector<test::RanksCall> calls = test::clean_calls(shape, 12);
  test::CallLoop loop(communicator, shape, calls);
  say("ready");
  int wrong = 0;
  for (int call = 0; call < count; ++call) {
    loop.enqueue(call % 12, 0, call % 3 == communicator.rank() % 3);
    wrong += loop.count_wrong();
  }
  communicator.barrier();  // nobody leaves while another still sums
  say("rank " + std::to_string(communicator.rank()) + ": " + std::to_string(wrong) + " wrong");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view mode = argc == 3 ? argv[1] : "";
    if (mode != "loop" && mode != "queue") throw std::runtime_error("usage: nvlink_rank_program loop|queue COUNT");
    const auto communicator = Communicator::from_environment({.device = Device::host(), .deadline = {}});
    return mode == "loop" ? loop(communicator, std::atoi(argv[2])) : queue(communicator, std::atoi(argv[2]));
  } catch (const Error& error) {
    say(error.what());
    return 3;
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
}
