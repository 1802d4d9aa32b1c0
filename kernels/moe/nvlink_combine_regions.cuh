// Where the nvlink combine reads and writes: rows here, partial rows there, and their flags (protocol/nvlink_moe.hpp,
// NvlinkLayout). For NvlinkCombine and NvlinkCombineMany.
#pragma once

#include "moelink/device/moe/line_partials.cuh"
#include "moelink/device/moe/nvlink_combine_items.cuh"

namespace moelink {

/// The flags at `holder` of `sender`'s partial rows.
template <class S>
MOELINK_DEVICE u64* combine_flags(S spec, const NvlinkCombineArgs& args, i32 holder, i32 sender) {
  return args.window.template at<u64>(holder, args.layout.combine_flags.offset_bytes, spec().num_ranks) +
         Remotes<S>(spec, args.remote).peer(sender) * args.shape.max_tokens * kMaxWireParts;
}

/// Those at `home` of one of this rank's slots, a flag for each wire part.
template <class S>
MOELINK_DEVICE u64* combine_flags_of(S spec, const NvlinkCombineArgs& args, i32 home, i32 slot) {
  return combine_flags(spec, args, home, args.window.rank) + static_cast<i64>(slot) * kMaxWireParts;
}

/// Where this rank stores, or packs, the partial row of one of its slots.
template <class S>
MOELINK_DEVICE u8* partial_place(S spec, const NvlinkCombineArgs& args, i32 home, i32 slot) {
  const Remotes<S> remotes(spec, args.remote);
  if (remotes.has(home)) {
    return remotes.packed(remotes.number(home)) + args.remote.send_layout.partials.offset_bytes +
           slot * remote_partial_bytes(spec);
  }
  const i64 region = static_cast<i64>(remotes.peer(args.window.rank)) * args.shape.max_tokens + slot;
  const i64 offset_bytes = args.layout.partial_rows.offset_bytes + region * args.shape.partial_pitch_bytes;
  return args.window.template at<u8>(home, offset_bytes, spec().num_ranks);
}

/// The partial rows that others have left here.
template <class S>
MOELINK_DEVICE const u8* partials_here(S spec, const NvlinkCombineArgs& args) {
  return args.window.template at<u8>(args.window.rank, args.layout.partial_rows.offset_bytes, spec().num_ranks);
}

/// The same as lines.
template <class S>
MOELINK_DEVICE u8* line_partial_place(S spec, const NvlinkCombineArgs& args, i32 home, i32 slot) {
  return line_partials(spec, args, home, args.window.rank) +
         i64{slot} * kLineExpansion * args.shape.partial_pitch_bytes;
}

/// The rows here of a slot's entries; `first_entry` counts slots of all sources.
MOELINK_DEVICE RowSum rows_of_entries(const NvlinkCombineArgs& args, i64 first_entry) {
  return {.rows = static_cast<const u8*>(args.local.expert_output),
          .row_stride_bytes = args.local.expert_output_stride_bytes,
          .num_rows = static_cast<u32>(min_of(args.local.expert_output_rows, static_cast<i64>(0x7fffffff))),
          .indices = args.tables.row_of_entry + first_entry,
          .weights = args.local.weighted != 0 ? args.tables.weight_of_entry + first_entry : nullptr,
          .shared = nullptr,
          .output = nullptr,
          .accumulate = false,
          .num_tokens = nullptr,
          .token = 0,
          .streaming = false};
}

/// By all blocks: NOTE [tags that come again] (protocol/nvlink_lines.hpp).
template <class Exec, class S>
MOELINK_DEVICE void clear_lines(const Exec& ex, S spec, const NvlinkCombineArgs& args) {
  u8* const lines = line_partials(spec, args, args.window.rank, 0);
  const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_threads() * 16;
  MOELINK_NO_UNROLL
  for (i64 at = (static_cast<i64>(ex.block()) * ex.num_threads() + ex.thread()) * 16;
       at < args.layout.line_partials.bytes(); at += step) {
    st_v4(lines + at, Vec16{0, 0, 0, 0});
  }
}

}  // namespace moelink
