// One rank, for tests that start processes:
//
//   rank_program once          joins, checks what it learns, leaves; 0
//   rank_program loop COUNT    joins, says "ready", makes COUNT barriers a few milliseconds apart; 0
//
// An Error is printed and becomes exit status 3.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "comm/process_traces.hpp"
#include "moelink/communicator.hpp"
#include "moelink/error.hpp"

namespace {

using moelink::Communicator;

void say(const std::string& words) {
  std::puts(words.c_str());
  std::fflush(stdout);
}

void expect(bool fact, const char* what) {
  if (!fact) {
    throw std::runtime_error(what);
  }
}

void check_gather(const Communicator& comm) {
  const std::vector<std::byte> mine(static_cast<std::size_t>(comm.rank()) + 1, static_cast<std::byte>(comm.rank()));
  const auto all = comm.all_gather(mine);
  expect(static_cast<int>(all.size()) == comm.size(), "the all-gather has a part for every rank");
  for (std::size_t r = 0; r < all.size(); ++r) {
    expect(all[r] == std::vector<std::byte>(r + 1, static_cast<std::byte>(r)), "every part is whole and in its place");
  }
}

void once() {
  const moelink::testing::Traces before;
  {
    const Communicator comm = Communicator::from_environment({.device = moelink::Device::host(), .deadline = {}});
    check_gather(comm);
    say("rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + " on " +
        std::to_string(comm.topology().num_nodes()) + " nodes");
    if (comm.rank() == 0) {
      say(comm.topology().to_string());
    }
  }
  expect(moelink::testing::back_to(before), "descriptors and threads are given back");
}

void loop(int count) {
  const Communicator comm = Communicator::from_environment({.device = moelink::Device::host(), .deadline = {}});
  say("ready");
  for (int i = 0; i < count; ++i) {
    comm.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  say("done");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "once") {
      once();
    } else if (mode == "loop" && argc == 3) {
      loop(std::atoi(argv[2]));
    } else {
      throw std::runtime_error("usage: rank_program once | loop COUNT");
    }
  } catch (const moelink::Error& error) {
    say(error.what());
    return 3;
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
  return 0;
}
