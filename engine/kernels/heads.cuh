// What happens to heads between their projections and attention.
//  1. (HeadSquares, only if all heads of a token are normalised together) sums of squares over a row's queries and keys
//  2. (PrepareHeads) norm, clamp, rotary positions; queries stay where they are, keys and values go to the cache's
//     pages
// A group of lanes has a head. Heads of one row lie behind each other: queries, keys, values. They are floats until
// they are cached; queries stay so. Where the inputs of their projections came in two parts, heads are the sums of two.
#pragma once

#include "engine/kernels/primitives/head_lanes.cuh"

namespace moelink::engine {

enum class HeadNorm : u8 { none, per_head, all_heads };

struct HeadsSpec {
  i64 head_dim;
  i32 num_heads;            ///< of this rank
  i32 num_kv_heads;         ///< of this rank
  i64 norm_query_elements;  ///< all_heads: elements of all ranks' queries together, and of their keys
  i64 norm_key_elements;
  i32 page_size;
  i32 threads;
  i32 heads_together;  ///< GPU: query heads of a block of attention, all of one key head; they share what is loaded
  u32 epsilon_bits;    ///< of a float
  u32 clip_bits;       ///< of a float; 0: no clamping
  Element element;     ///< of weights; the cache has cache_element
  HeadNorm norm;

  constexpr i64 row_elements() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(head_dim, num_heads, num_kv_heads, norm_query_elements, norm_key_elements, page_size, threads,
                 heads_together, epsilon_bits, clip_bits, element, norm);
  }
};

/// The rows of a step, as kernels see them.
struct StepRows {
  const i32* positions;   ///< [num_rows]
  const i32* sequences;   ///< [num_rows] row of the page table; -1: the row is only there to fill up
  const i32* page_table;  ///< [sequences, page_stride]
  i64 page_stride;
  i64 num_rows;
};

/// One layer's keys or values: [pages, kv heads, page_size, head_dim].
template <Element E, class Spec>
MOELINK_DEVICE i64 cache_offset(const Spec& spec, const StepRows& rows, i32 sequence, i32 position, i32 kv_head) {
  const i64 page = rows.page_table[sequence * rows.page_stride + position / spec.page_size];
  return ((page * spec.num_kv_heads + kv_head) * spec.page_size + position % spec.page_size) * spec.head_dim *
         bytes_of(cache_element(E));
}

struct HeadSquaresArgs {
  const float* heads;  ///< [num_rows, row_elements]
  const float* rest;   ///< the same, of second parts; or null
  float* squares;      ///< [num_rows, 2]: of queries, of keys
  i64 num_rows;
};

struct HeadSquares {
  static constexpr const char* kName = "HeadSquares";
  static constexpr const char* kHeader = "engine/kernels/heads.cuh";
  static constexpr int kScratchBytes = 128;
  using Spec = HeadsSpec;
  using Args = HeadSquaresArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    constexpr int kWidth = chunk_width(Element::float32);
    for (i64 item = ex.block(); item < args.num_rows * 2; item += ex.num_blocks()) {
      const bool keys = item % 2 != 0;
      const i64 query_chunks = spec().num_heads * spec().head_dim / kWidth;
      const i64 key_chunks = spec().num_kv_heads * spec().head_dim / kWidth;
      const i64 first = keys ? query_chunks : 0;
      const i64 last = first + (keys ? key_chunks : query_chunks);
      const i64 place = item / 2 * spec().row_elements();
      float squares = 0;
      for (i64 c = first + ex.thread(); c < last; c += ex.num_threads()) {
        float values[kWidth];
        load_chunk<Element::float32>(args.heads + place, c, values);
        if (args.rest != nullptr) {
          float rest[kWidth];
          load_chunk<Element::float32>(args.rest + place, c, rest);
          for (int i = 0; i < kWidth; ++i) values[i] += rest[i];
        }
        for (int i = 0; i < kWidth; ++i) squares += values[i] * values[i];
      }
      const float sum = block_sum(ex, squares);
      if (ex.thread() == 0) args.squares[item] = sum;
    }
  }
};

struct PrepareHeadsArgs {
  float* heads;              ///< [num_rows, row_elements]
  const float* rest;         ///< the same, of second parts; or null
  const void* query_weight;  ///< per_head: [head_dim]; all_heads: [num_heads, head_dim]
  const void* key_weight;
  const float* squares;  ///< all_heads: [num_rows, 2]
  const float* angles;   ///< [positions, head_dim]: cosines, then sines
  void* keys;            ///< this layer's part of the cache
  void* values;
  StepRows rows;
};

struct PrepareHeads {
  static constexpr const char* kName = "PrepareHeads";
  static constexpr const char* kHeader = "engine/kernels/heads.cuh";
  using Spec = HeadsSpec;
  using Args = PrepareHeadsArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      using Head = HeadLanes<kElement, Exec, S>;
      const i32 heads_per_row = spec().num_heads + 2 * spec().num_kv_heads;
      const i64 num_heads = args.rows.num_rows * heads_per_row;
      const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_warps() * Head::groups_per_warp();
      Head head(ex, spec);
      // Whole warps go round together: their lanes exchange values.
      const i64 first = (static_cast<i64>(ex.block()) * ex.num_warps() + ex.warp()) * Head::groups_per_warp();
      for (i64 base = first; base < num_heads; base += step) {
        const i64 index = min_of(base + head.group(), num_heads - 1);
        const bool valid = base + head.group() < num_heads;
        prepare<kElement>(ex, spec, args, head, index / heads_per_row, static_cast<i32>(index % heads_per_row), valid);
      }
    });
  }

 private:
  template <Element E, class Exec, class S, class Head>
  MOELINK_DEVICE static void prepare(const Exec& ex, S spec, const Args& args, Head& head, i64 row, i32 index,
                                     bool valid) {
    const i64 offset = (row * (spec().num_heads + 2 * spec().num_kv_heads) + index) * spec().head_dim;
    float* place = args.heads + offset;
    head.load_floats(place);
    if (args.rest != nullptr) head.add_floats(args.rest + offset);
    const bool is_query = index < spec().num_heads;
    const bool is_value = index >= spec().num_heads + spec().num_kv_heads;
    const i32 head_index = is_query ? index : index - spec().num_heads;
    if (spec().norm != HeadNorm::none) normalise<E>(ex, spec, args, head, row, head_index, is_query, is_value);
    if (spec().clip_bits != 0) head.clamp(float_from_bits(spec().clip_bits));
    const i32 position = args.rows.positions[row];
    Head turned = head;
    turned.rotate(args.angles + position * spec().head_dim);
    const i32 sequence = args.rows.sequences[row];
    if (!valid || sequence < 0) return;
    if (is_query) {
      turned.store_floats(place);
    } else if (!is_value) {
      turned.store(static_cast<u8*>(args.keys) + cache_offset<E>(spec(), args.rows, sequence, position, head_index));
    } else {
      const i32 value_index = head_index - spec().num_kv_heads;
      head.store(static_cast<u8*>(args.values) + cache_offset<E>(spec(), args.rows, sequence, position, value_index));
    }
  }

  template <Element E, class Exec, class S, class Head>
  MOELINK_DEVICE static void normalise(const Exec& ex, S spec, const Args& args, Head& head, i64 row, i32 head_index,
                                       bool is_query, bool is_value) {
    const bool all = spec().norm == HeadNorm::all_heads;
    const float own = head.squares(ex);  // by all lanes, also where it is not needed
    if (is_value) return;
    const float squares = all ? args.squares[row * 2 + (is_query ? 0 : 1)] : own;
    const i64 elements = !all ? spec().head_dim : is_query ? spec().norm_query_elements : spec().norm_key_elements;
    const float scale = inverse_sqrt(squares / static_cast<float>(elements) + float_from_bits(spec().epsilon_bits));
    const void* weights = is_query ? args.query_weight : args.key_weight;
    head.scale(scale, all ? row_at<E>(weights, head_index, spec().head_dim) : weights);
  }
};

}  // namespace moelink::engine
