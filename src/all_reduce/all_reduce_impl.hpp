// One AllReduce: what was agreed at construction, the kernels, and the memory.
#pragma once

#include <memory>
#include <string>

#include "all_reduce/kernels.hpp"
#include "all_reduce/nccl_all_reduce.hpp"
#include "all_reduce/plan.hpp"
#include "moelink/all_reduce.hpp"
#include "peers/peer_workspace.hpp"
#include "peers/residency.hpp"

namespace moelink {

class AllReduce::Impl {
 public:
  Impl(const Communicator& communicator, const AllReduceConfig& config);

  [[nodiscard]] static MemoryReport memory_of(const Communicator& communicator, const AllReduceConfig& config);

  void run(const AllReduceArgs& args, StreamView stream);
  void check();
  [[nodiscard]] std::string describe_plan(i64 num_elements) const;

 private:
  void set_up_kernels();
  void launch(const AllReducePlan& plan, const AllReduceKernelArgs& args, StreamView stream) const;

  Communicator communicator_;
  AllReduceConfig config_;
  AllReduceKernels kernels_;
  AllReduceFacts facts_;
  std::unique_ptr<NcclAllReduce> nccl_;  // then nothing below is used
  std::unique_ptr<PeerWorkspace> workspace_;
  Buffer epochs_;
  ResidencyClaim residency_;
};

}  // namespace moelink
