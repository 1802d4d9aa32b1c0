// The weighted sum of those of a token's rows that exist, where most may not: each rank owns few of a token's experts.
//
// A warp keeps the indices, one a lane, and deals out only those that exist, in order: loads of rows that exist fill
// the registers, whatever the top-k. The same bits as row_reduce.cuh: fp32 from zero, rows ascending, products and sums
// rounded.
#pragma once

#include "moelink/device/primitives/row_reduce.cuh"

namespace moelink {

#if MOELINK_ON_DEVICE

/// The rows of one sum: kSpec has `input` and `top_k`. Used by whole warps.
template <auto kSpec, int kUnit>
class SparseRows {
 public:
  static constexpr int kBytes = kUnit * bytes_of(kSpec.input);
  /// Under way at once, of each unit.
  template <int kUnits>
  static constexpr int kRowsAtOnce = min_of(kSpec.top_k, max_of(8 / kUnits, 1));
  static_assert(kSpec.top_k <= 32, "an index a lane");

  MOELINK_DEVICE explicit SparseRows(const RowSum& sum) : sum_(sum) {}

  /// What a lane knows of one row.
  struct Entry {
    i32 index = -1;
    float weight = 1;
  };
  template <class Exec>
  MOELINK_DEVICE static Entry fetch(const Exec& ex, const i32* indices, const float* weights) {
    const bool has = ex.lane() < kSpec.top_k;
    return {has ? indices[ex.lane()] : -1, has && weights != nullptr ? weights[ex.lane()] : 1.0F};
  }
  MOELINK_DEVICE void hold(const Entry& entry) {
    index_ = entry.index;
    weight_ = entry.weight;
    exist_ = __ballot_sync(0xffffffffU, static_cast<u32>(index_) < sum_.num_rows);
  }
  template <class Exec>
  MOELINK_DEVICE void load(const Exec& ex) {
    hold(fetch(ex, sum_.indices, sum_.weights));
  }

  /// Adds unit `unit`, unit + step, ... of every row to a total each, as many of kUnits as are below `end`.
  ///
  /// Loads have no conditions: what is past the end, or the last row, is read again and not used. With a condition in a
  /// loop the assembler loads into one register after the other and copies from there, so that each load waits for the
  /// one before.
  template <int kUnits, int kRows = kRowsAtOnce<kUnits>>
  MOELINK_DEVICE void add_to(float (*totals)[kUnit], int unit, int step, int end) const {
    i64 offsets[kUnits];
    MOELINK_UNROLL
    for (int u = 0; u < kUnits; ++u) offsets[u] = static_cast<i64>(min_of(unit + u * step, end - 1)) * kBytes;
    MOELINK_NO_UNROLL
    for (u32 rest = exist_; rest != 0;) {
      Elements<kSpec.input, kUnit> rows[kUnits][kRows];
      float weights[kRows];
      int lanes[kRows];
      bool exists[kRows];
      MOELINK_UNROLL
      for (int j = 0; j < kRows; ++j) {
        exists[j] = rest != 0;
        lanes[j] = exists[j] ? __ffs(static_cast<int>(rest)) - 1 : lanes[max_of(j - 1, 0)];
        rest &= rest - 1;
        const u8* row = sum_.rows + __shfl_sync(0xffffffffU, index_, lanes[j]) * sum_.row_stride_bytes;
        weights[j] = __shfl_sync(0xffffffffU, weight_, lanes[j]);
        MOELINK_UNROLL
        for (int u = 0; u < kUnits; ++u) rows[u][j].load_once(row + offsets[u]);
      }
      MOELINK_UNROLL
      for (int j = 0; j < kRows; ++j) {
        if (!exists[j]) continue;
        MOELINK_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          float values[kUnit];
          rows[u][j].to_floats(values);
          MOELINK_UNROLL
          for (int i = 0; i < kUnit; ++i) totals[u][i] = add_rn(totals[u][i], mul_rn(values[i], weights[j]));
        }
      }
    }
  }

 private:
  const RowSum& sum_;
  i32 index_ = -1;  ///< of the row that this lane knows
  float weight_ = 1;
  u32 exist_ = 0;  ///< the lanes whose rows exist
};

#endif

}  // namespace moelink
