// Which physical expert an entry goes to, and the hash by which members of a group notice that they differ.
#pragma once

#include "moelink/device/primitives/expert_code.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// Ids to physical experts: as they are, or by the caller's map of replicas (NvlinkDispatchArgs::expert_map).
class PhysicalExperts {
 public:
  template <class S>
  MOELINK_DEVICE PhysicalExperts(S spec, const NvlinkDispatchArgs& args)
      : map_(args.expert_map),
        num_logical_(args.num_logical_experts),
        max_replicas_(args.max_replicas),
        num_physical_(spec().num_experts),
        group_(static_cast<u32>(args.window.rank / spec().tp_size)) {}

  /// The code of an entry of `token`: its physical expert, kSkippedCode (also an expert that lives nowhere) or
  /// kOutOfRangeCode. With several replicas, number (group + token) mod how many there are.
  MOELINK_DEVICE u16 code(const IdWords& id, i32 token) const {
    if (map_ == nullptr) return id.code(num_physical_);
    const u16 logical = id.code(num_logical_);
    if (logical >= num_logical_) return logical;
    const i32* replicas = map_ + static_cast<i64>(logical) * max_replicas_;
    u32 count = 0;
    while (count < static_cast<u32>(max_replicas_) && replicas[count] != -1) ++count;
    if (count == 0) return kSkippedCode;
    const i32 expert = replicas[(group_ + static_cast<u32>(token)) % count];
    return static_cast<u32>(expert) < static_cast<u32>(num_physical_) ? static_cast<u16>(expert) : kOutOfRangeCode;
  }

 private:
  const i32* map_;
  i32 num_logical_;
  i32 max_replicas_;
  i32 num_physical_;
  u32 group_;
};

/// DispatchHeader::kHash is the sum of this over all entries, in any order. `weight_bits`: of the float.
MOELINK_DEVICE u32 entry_hash(u32 entry, u16 code, u32 weight_bits) {
  u32 mixed = (entry * 0x9e3779b1U ^ code) * 0x85ebca77U;
  mixed ^= mixed >> 15U;
  mixed = (mixed + weight_bits) * 0xc2b2ae3dU;
  mixed ^= mixed >> 13U;
  return mixed * 0x27d4eb2fU ^ mixed;
}

}  // namespace moelink
