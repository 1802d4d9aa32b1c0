// Ranks in processes of their own, on this machine's devices in turn.
#pragma once

#include <string>
#include <vector>

#include "cuda_case.hpp"
#include "process_group.hpp"

namespace moelink::test {

inline std::vector<std::string> run_processes(int num_ranks, MemoryKind kind, const std::string& scenario,
                                              const std::string& socket_directory) {
  const ProcessMeeting meeting(num_ranks);
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    children.push_back(start_peer(meeting, rank, std::string(name_of(kind)), device_of_rank(rank).ordinal(), scenario,
                                  socket_directory));
  }
  return wait_for(children, std::chrono::seconds(50));
}

}  // namespace moelink::test
