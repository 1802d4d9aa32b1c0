// All-reduce by NCCL: between nodes, and as a baseline inside one.
#pragma once

#include <memory>
#include <string>

#include "moelink/all_reduce.hpp"

namespace moelink {

/// Sums in NCCL's order and precision. What the deadline covers is in docs/all-reduce.md, "NCCL".
class NcclAllReduce {
 public:
  /// Collective. The ranks' places are checked (place.hpp). Throws ErrorCode::unsupported on every rank if one of them
  /// has no NCCL, and timeout or peer if NCCL does not come up.
  NcclAllReduce(const Communicator& communicator, const AllReduceConfig& config);
  ~NcclAllReduce();
  NcclAllReduce(const NcclAllReduce&) = delete;
  NcclAllReduce& operator=(const NcclAllReduce&) = delete;

  /// `args` are checked; not empty. Can be captured.
  void run(const AllReduceArgs& args, StreamView stream);

  /// Throws the group's fault, or what NCCL met, after telling the group. Never waits.
  void check();

  /// "nccl 2.28.9".
  [[nodiscard]] std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink
