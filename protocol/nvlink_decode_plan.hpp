// How NvlinkDecode is launched: block size, grid, how a row is shared. Pure functions of shape, token count and device;
// what a peer must know of it travels in the header (WireFormat).
#pragma once

#include "moelink/protocol/local_plan.hpp"
#include "moelink/protocol/nvlink_scratch.hpp"

namespace moelink {

/// Measured choices.
struct NvlinkDecodeTuning {
  i32 threads;           ///< block size
  i32 part_bytes;        ///< most bytes of a row that a block of that size holds (RowPart)
  i32 blocks_per_sm;     ///< rows are shared by blocks while fewer than this times the SMs would be busy
  i32 least_blocks;      ///< a grid is not smaller, however few the own tokens: others may have sent many
  i64 late_flags_bytes;  ///< from so many bytes to send on, flags wait until own rows are placed
};

inline constexpr NvlinkDecodeTuning kGpuDecodeTuning{
    .threads = 256, .part_bytes = 256 * 32, .blocks_per_sm = 2, .least_blocks = 64, .late_flags_bytes = 1 << 20};
inline constexpr NvlinkDecodeTuning kHostDecodeTuning{
    .threads = 1, .part_bytes = 0x7ffffff0, .blocks_per_sm = 1, .least_blocks = 256, .late_flags_bytes = i64{1} << 62};

constexpr const NvlinkDecodeTuning& nvlink_decode_tuning_for(const LocalDevice& device) {
  return device.is_host ? kHostDecodeTuning : kGpuDecodeTuning;
}

constexpr NvlinkDispatchSpec with_decode_threads(NvlinkDispatchSpec spec, const LocalDevice& device) {
  spec.threads = nvlink_decode_tuning_for(device).threads;
  // Ranks that share a GPU need room for each other's blocks: four of an SM's are two for each of two ranks. What takes
  // registers (products, groups, remotes, divisions, scales with rows that are not short) leaves room for fewer without
  // spills.
  const bool is_plain = spec.weighted == Element::none && spec.tp_size == 1 && !spec.has_remotes;
  const bool divides = spec.top_k % 4 != 0 || (spec.num_ranks & (spec.num_ranks - 1)) != 0;
  const bool brings_scales = spec.scale_bytes != 0 && spec.quantize == QuantFormat::none;
  const bool is_small = spec.top_k % 8 == 0 && spec.top_k <= 16 && spec.num_ranks <= 16 && !divides && !brings_scales;
  spec.blocks_per_sm = device.is_host ? 1 : is_plain && is_small ? 4 : is_plain && !divides ? 3 : 2;
  return spec;
}

/// Whether rows are short enough: a part, as it is read, fits a block, and the wire knows no more than kMaxWireParts.
constexpr bool nvlink_decode_holds_rows(i64 row_bytes, const LocalDevice& device, i32 token_bytes_per_byte = 1) {
  return wire_part_bytes(row_bytes, kMaxWireParts) <=
         nvlink_decode_tuning_for(device).part_bytes / token_bytes_per_byte;
}

struct NvlinkDecodePlan {
  i32 grid = 1;
  i32 parts = 1;  ///< of a row: LocalDispatchArgs::parts
  i32 scratch_bytes = 0;
  i32 late_flags = 0;  ///< NvlinkDispatchArgs
  friend constexpr bool operator==(const NvlinkDecodePlan&, const NvlinkDecodePlan&) = default;
};

/// What a plan says to the kernel.
constexpr void apply(const NvlinkDecodePlan& plan, NvlinkDispatchArgs& args) {
  args.local.parts = plan.parts;
  args.late_flags = plan.late_flags;
}

/// A dispatch of up to `num_tokens` tokens on at most `max_blocks` blocks, which can all wait at the same time; of
/// these `sms` SMs (host: threads) are theirs. The other ranks are taken to have as many tokens.
constexpr NvlinkDecodePlan plan_nvlink_decode(const NvlinkDispatchSpec& spec, i64 num_tokens, bool reuse_routing,
                                              i32 max_blocks, i32 sms, const LocalDevice& device) {
  const NvlinkDecodeTuning& tuning = nvlink_decode_tuning_for(device);
  const i32 wanted = min_of(sms * tuning.blocks_per_sm, max_blocks);
  NvlinkDecodePlan plan;
  const i32 read_per_byte = spec.token_bytes_per_byte();
  // Half of the blocks are for what others send.
  const i64 rows = spec.num_ranks > 1 ? 2 * num_tokens : num_tokens;
  plan.parts = parts_of_row(rows, spec.row_bytes * read_per_byte / 16, tuning.threads, wanted, kMaxWireParts);
  while (wire_part_bytes(spec.row_bytes, plan.parts) > tuning.part_bytes / read_per_byte) plan.parts *= 2;
  // Blocks for what is sent and for what comes, each token from or to at most top_k other ranks; one to spare publishes
  // what is known about experts.
  const i64 others = min_of(spec.num_ranks / spec.tp_size - 1, spec.top_k);
  const i64 items = num_tokens * plan.parts * (1 + others) + (device.is_host ? 0 : 1);
  const bool much = num_tokens * max_of(others, 1L) * spec.row_bytes >= tuning.late_flags_bytes;
  plan.late_flags = much && !spec.has_remotes ? 1 : 0;
  const i64 least = spec.num_ranks > 1 ? tuning.least_blocks : 1;
  plan.grid = static_cast<i32>(max_of(min_of(max_of(items, least), static_cast<i64>(max_blocks)), 1L));
  plan.scratch_bytes = NvlinkDecodeScratch(spec, reuse_routing ? 0 : static_cast<i32>(num_tokens)).total;
  return plan;
}

}  // namespace moelink
