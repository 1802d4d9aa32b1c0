// Attention of each row's queries over the pages of its sequence, up to the row's own position.
//  1. a block has the heads of one row that share a key head (on the host: one head); its groups of lanes take
//     positions in turn, each with a running maximum, sum and weighted value for every head (the softmax that needs one
//     pass)
//  2. head by head, the groups' results are weighed against each other
// How positions are shared out, and so the order of a row's sums, depends on its position alone: not on the batch, and
// not on which pages hold the sequence.
#pragma once

#include "engine/kernels/heads.cuh"
#include "moelink/device/exec/spec.cuh"

namespace moelink::engine {

/// Query heads that a block holds at once.
template <class S>
inline constexpr int kHeadsTogether = 1;
template <HeadsSpec V>
inline constexpr int kHeadsTogether<Static<V>> = V.heads_together;

struct AttentionArgs {
  const float* heads;  ///< [num_rows, HeadsSpec::row_elements]: prepared queries first
  const void* keys;    ///< this layer's part of the cache
  const void* values;
  void* output;  ///< [num_rows, num_heads, head_dim]
  void* rest;    ///< the same: what rounding the output leaves, or null
  float scale;   ///< of products, before the softmax
  StepRows rows;
};

struct Attention {
  static constexpr const char* kName = "Attention";
  static constexpr const char* kHeader = "engine/kernels/attention.cuh";
  using Spec = HeadsSpec;
  using Args = AttentionArgs;

  /// What `num_groups` groups of a block have found: a head, a maximum and a weight each.
  static constexpr int scratch_bytes(const Spec& spec, int num_groups) {
    return static_cast<int>((spec.head_dim + 2) * num_groups) * 4;
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      const i64 items_per_row = spec().num_heads / kHeadsTogether<S>;
      for (i64 item = ex.block(); item < args.rows.num_rows * items_per_row; item += ex.num_blocks()) {
        attend<kElement>(ex, spec, args, item / items_per_row,
                         static_cast<i32>(item % items_per_row) * kHeadsTogether<S>);
      }
    });
  }

 private:
  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void attend(const Exec& ex, S spec, const Args& args, i64 row, i32 first_head) {
    using Head = HeadLanes<E, Exec, S>;
    constexpr int kHeads = kHeadsTogether<S>;
    const i32 sequence = args.rows.sequences[row];
    const i32 last = sequence < 0 ? -1 : args.rows.positions[row];
    const i32 kv_head = first_head / (spec().num_heads / spec().num_kv_heads);
    const i64 first_place = row * (spec().num_heads + 2 * spec().num_kv_heads) + first_head;
    Head queries[kHeads];
    Head sums[kHeads];
    float maxima[kHeads];
    float weights[kHeads];
    MOELINK_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      queries[h] = Head(ex, spec);
      queries[h].load_floats(args.heads + (first_place + h) * spec().head_dim);
      sums[h] = Head(ex, spec);
      sums[h].clear();
      maxima[h] = kNegativeInfinity;
      weights[h] = 0;
    }
    Head key(ex, spec);
    Head value(ex, spec);
    key.clear();
    const i32 step = ex.num_warps() * Head::groups_per_warp();
    // Whole warps go round together: their lanes exchange values.
    for (i32 base = ex.warp() * Head::groups_per_warp(); base <= last; base += step) {
      const i32 position = base + key.group();
      const bool valid = position <= last;
      const i64 offset = cache_offset<E>(spec(), args.rows, sequence, valid ? position : last, kv_head);
      key.load(static_cast<const u8*>(args.keys) + offset);
      value.load(static_cast<const u8*>(args.values) + offset);
      MOELINK_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const float score = queries[h].dot(ex, key) * args.scale;
        if (!valid) continue;
        const float higher = max_of(maxima[h], score);
        const float keep = exp_of(maxima[h] - higher);
        const float add = exp_of(score - higher);
        sums[h].blend(keep, value, add);
        weights[h] = weights[h] * keep + add;
        maxima[h] = higher;
      }
    }
    MOELINK_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      merge<E>(ex, spec, args, row * spec().num_heads + first_head + h, sums[h], maxima[h], weights[h]);
    }
  }

  template <Element E, class Exec, class S, class Head>
  MOELINK_DEVICE static void merge(const Exec& ex, S spec, const Args& args, i64 place, const Head& sum, float maximum,
                                   float weight) {
    const i64 num_groups = ex.num_warps() * Head::groups_per_warp();
    const i64 group = ex.warp() * Head::groups_per_warp() + sum.group();
    const i64 dim = spec().head_dim;
    float* sums = static_cast<float*>(ex.scratch());
    float* maxima = sums + num_groups * dim;
    float* weights = maxima + num_groups;
    sum.spill(sums + group * dim);
    maxima[group] = maximum;
    weights[group] = weight;
    ex.sync_block();

    float highest = kNegativeInfinity;
    for (i64 g = 0; g < num_groups; ++g) highest = max_of(highest, maxima[g]);
    float total = 0;
    for (i64 g = 0; g < num_groups; ++g) {
      if (weights[g] > 0) total += weights[g] * exp_of(maxima[g] - highest);
    }
    constexpr int kWidth = chunk_width(E);
    for (i64 c = ex.thread(); c < dim / kWidth; c += ex.num_threads()) {
      float values[kWidth] = {};
      for (i64 g = 0; g < num_groups; ++g) {
        if (!(weights[g] > 0)) continue;
        const float share = exp_of(maxima[g] - highest) / total;
        for (int i = 0; i < kWidth; ++i) values[i] += sums[g * dim + c * kWidth + i] * share;
      }
      store_chunk<E>(row_at<E>(args.output, place, dim), c, values);
      if (args.rest != nullptr) store_rest<E>(row_at<E>(args.rest, place, dim), c, values);
    }
    ex.sync_block();  // the next item writes the same scratch
  }
};

}  // namespace moelink::engine
