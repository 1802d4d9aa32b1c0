// One rank in a process of its own. CUDA does not survive fork, so the tests of device memory start this program.
#include <cstdio>
#include <cstdlib>

#include "peer_scenario.hpp"

namespace {

moelink::MemoryKind kind_of(const std::string& name) {
  for (int i = 0; i < moelink::kNumMemoryKinds; ++i) {
    if (name == moelink::name_of(static_cast<moelink::MemoryKind>(i))) {
      return static_cast<moelink::MemoryKind>(i);
    }
  }
  std::fprintf(stderr, "memory kind %s does not exist\n", name.c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: %s <meeting fd> <rank> <kind> <device or -1> <scenario> <socket directory>\n",
                 argv[0]);
    return 2;
  }
  moelink::test::ProcessMeeting meeting{moelink::UniqueFd(std::atoi(argv[1]))};
  return moelink::test::run_scenario(meeting, std::atoi(argv[2]), kind_of(argv[3]), std::atoi(argv[4]), argv[5],
                                     argv[6]);
}
