// One rank, for tests that start processes:
//
//   all_reduce_rank_program loop COUNT [LATE_MS]
//
// joins, says "ready", sleeps LATE_MS, sums COUNT times, messages of every algorithm in turn, checks every element, and
// gives everything back; 0. An Error is printed and becomes exit status 3, anything else 1.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "all_reduce/sum_check.hpp"
#include "comm/process_traces.hpp"
#include "moelink/error.hpp"

namespace {

using namespace moelink;

constexpr std::int64_t kSizes[] = {1, 1000, 50'000, 300'000};  // push, stream, two-shot

void say(const std::string& words) {
  std::puts(words.c_str());
  std::fflush(stdout);
}

void sum(int count, std::chrono::milliseconds late) {
  const auto communicator = Communicator::from_environment({.device = Device::host(), .deadline = {}});
  AllReduce all_reduce(communicator, {.type = DataType::float32, .max_elements = kSizes[3]});
  const Stream stream(Device::host(), {.num_threads = 1});
  moelink::testing::SumCheck check(kSizes[3]);
  say("ready");
  std::this_thread::sleep_for(late);
  for (int call = 0; call < count; ++call) {
    const std::int64_t num_elements = kSizes[call % 4];
    all_reduce(check.prepare(communicator, call, num_elements), stream);
    stream.synchronize();
    all_reduce.check();
    if (check.count_wrong(communicator.size(), num_elements) != 0) {
      throw std::runtime_error("wrong sum in call " + std::to_string(call));
    }
  }
  communicator.barrier();  // nobody leaves while another still sums
  say("done");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3 || std::string_view(argv[1]) != "loop") {
      throw std::runtime_error("usage: all_reduce_rank_program loop COUNT [LATE_MS]");
    }
    const moelink::testing::Traces before;
    sum(std::atoi(argv[2]), std::chrono::milliseconds(argc > 3 ? std::atoi(argv[3]) : 0));
    if (!moelink::testing::back_to(before)) {
      throw std::runtime_error("descriptors or threads were not given back");
    }
  } catch (const Error& error) {
    say(error.what());
    return 3;
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
  return 0;
}
