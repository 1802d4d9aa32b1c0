// One rank of an Exchange over processes:
//
//   nvlink_rank_program loop COUNT
//
// joins by the environment (a test that starts processes, or mpirun), says "ready", dispatches and combines COUNT times, compares every output with the reference; 0 if all are
// right. An Error is printed and becomes exit status 3, anything else 1.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "exchange/nvlink_calls.hpp"
#include "moelink/error.hpp"

namespace {

using namespace moelink;

void say(const std::string& words) {
  std::puts(words.c_str());
  std::fflush(stdout);
}

int run(int count) {
  const auto communicator = Communicator::from_environment({.device = Device::host(), .deadline = {}});
  const test::RanksShape shape{.num_ranks = communicator.size(),
                               .tp_size = communicator.size() % 2 == 0 ? 2 : 1,
                               .num_experts = 10,
                               .top_k = 3,
                               .hidden = 64,
                               .max_tokens = 250};
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
    if (argc < 3 || std::string_view(argv[1]) != "loop")
      throw std::runtime_error("usage: nvlink_rank_program loop COUNT");
    return run(std::atoi(argv[2]));
  } catch (const Error& error) {
    say(error.what());
    return 3;
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
}
