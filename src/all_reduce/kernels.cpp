#include "all_reduce/kernels.hpp"

#include <algorithm>

namespace moelink {

AllReduceSpec push_spec(Element element, int num_ranks) {
  return {.element = element, .num_ranks = num_ranks, .threads = kPushThreads, .slot_bytes = kSlotBytes};
}

AllReduceSpec pack_spec(Element element, int num_ranks) {
  return {.element = element, .num_ranks = num_ranks, .threads = kPackThreads, .slot_bytes = kSlotBytes};
}

AllReduceSpec stream_spec(Element element, int num_ranks) {
  return {.element = element, .num_ranks = num_ranks, .threads = kStreamThreads, .slot_bytes = kSlotBytes};
}

AllReduceSpec two_shot_spec(Element element, int num_ranks, bool multicast) {
  return {.element = element,
          .num_ranks = num_ranks,
          .threads = kTwoShotThreads,
          .slot_bytes = kSlotBytes,
          .multicast = multicast};
}

AllReduceKernels AllReduceKernels::add_to(KernelLoader& loader, Element element, int num_ranks, bool with_nvls) {
  AllReduceKernels kernels;
  kernels.push = loader.add<AllReducePush>(push_spec(element, num_ranks));
  kernels.has_pack = can_pack(num_ranks);
  if (kernels.has_pack) {
    kernels.pack = loader.add<AllReducePack>(pack_spec(element, num_ranks));
  }
  kernels.stream = loader.add<AllReduceStream>(stream_spec(element, num_ranks));
  kernels.two_shot = loader.add<AllReduceTwoShot>(two_shot_spec(element, num_ranks, false));
  kernels.has_nvls = with_nvls;
  if (with_nvls) {
    kernels.nvls = loader.add<AllReduceTwoShot>(two_shot_spec(element, num_ranks, true));
  }
  return kernels;
}

int AllReduceKernels::staged_blocks_per_sm() const {
  const int unicast = std::min(stream.max_blocks_per_sm(sizeof(StreamScratch)), two_shot.max_blocks_per_sm(0));
  return has_nvls ? std::min(unicast, nvls.max_blocks_per_sm(0)) : unicast;
}

}  // namespace moelink
