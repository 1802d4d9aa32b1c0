// One attention head, held by those who work on it: on a GPU a group of lanes with chunks of sixteen bytes each (heads
// of 128 bf16 take half a warp, so that a warp holds two), on the host one thread with all of it.
#pragma once

#include "engine/kernels/primitives/chunk.cuh"
#include "engine/kernels/primitives/math.cuh"
#include "engine/kernels/primitives/reduce.cuh"

namespace moelink::engine {

/// Largest head dimension on the host, where it is no constant.
inline constexpr int kMaxHeadDim = 512;

/// What keys and values are cached in, beside weights of a type: fp16 has three bits more than bf16 in the same memory,
/// and its range is enough for them.
constexpr Element cache_element(Element weights) { return weights == Element::bfloat16 ? Element::float16 : weights; }

template <Element E>
MOELINK_DEVICE float cacheable(float value) {
  if constexpr (cache_element(E) == Element::float16) {
    return within_fp16(value);
  } else {
    return value;
  }
}

#if MOELINK_ON_DEVICE

constexpr int next_power_of_two(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

template <Element E, class Exec, class S>
class HeadLanes {
 public:
  static constexpr int kDim = static_cast<int>(S{}().head_dim);
  static constexpr int kWidth = chunk_width(E);
  static constexpr int kChunks = kDim / kWidth;  ///< of a head
  static_assert(kDim % (2 * kWidth) == 0, "both halves of a head are whole chunks");
  static constexpr int kLanes = min_of(next_power_of_two(kChunks), 32);  ///< of a group
  static constexpr int kChunksPerLane = ceil_div(kChunks, kLanes);       ///< more than one only in whole warps
  static constexpr int kGroupsPerWarp = 32 / kLanes;
  static_assert(kChunksPerLane == 1 || (kChunks / 2) % kLanes == 0, "halves of a long head are whole rounds of lanes");

  HeadLanes() = default;
  MOELINK_DEVICE HeadLanes(const Exec& ex, S) : lane_(ex.lane() % kLanes), group_(ex.lane() / kLanes) {}

  /// Groups of a warp, and which this is.
  MOELINK_DEVICE static constexpr int groups_per_warp() { return kGroupsPerWarp; }
  MOELINK_DEVICE int group() const { return group_; }

  MOELINK_DEVICE void clear() {
    MOELINK_UNROLL
    for (int i = 0; i < kSize; ++i) values_[i] = 0;
  }
  /// A head in the cache.
  MOELINK_DEVICE void load(const void* head) {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (holds(j)) load_chunk<kCached>(head, chunk(j), values_ + j * kWidth);
    }
  }
  /// A head of floats, and to one.
  MOELINK_DEVICE void load_floats(const float* head) {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (holds(j)) engine::load_floats<E>(head, chunk(j), values_ + j * kWidth);
    }
  }
  MOELINK_DEVICE void add_floats(const float* head) {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (!holds(j)) continue;
      float summands[kWidth];
      engine::load_floats<E>(head, chunk(j), summands);
      MOELINK_UNROLL
      for (int i = 0; i < kWidth; ++i) values_[j * kWidth + i] += summands[i];
    }
  }
  MOELINK_DEVICE void store_floats(float* head) const {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (holds(j)) engine::store_floats<E>(head, chunk(j), values_ + j * kWidth);
    }
  }
  /// To the cache.
  MOELINK_DEVICE void store(void* head) const {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (!holds(j)) continue;
      float chunk_values[kWidth];
      MOELINK_UNROLL
      for (int i = 0; i < kWidth; ++i) chunk_values[i] = cacheable<E>(values_[j * kWidth + i]);
      store_chunk<kCached>(head, chunk(j), chunk_values);
    }
  }
  /// The sum of squares over the head, in all lanes of the group. All lanes of the warp call.
  MOELINK_DEVICE float squares(const Exec& ex) const {
    float sum = 0;
    MOELINK_UNROLL
    for (int i = 0; i < kSize; ++i) sum += values_[i] * values_[i];
    return group_sum<kLanes>(ex, sum);
  }
  /// The product with another head, in all lanes of the group. All lanes of the warp call.
  MOELINK_DEVICE float dot(const Exec& ex, const HeadLanes& other) const {
    float sum = 0;
    MOELINK_UNROLL
    for (int i = 0; i < kSize; ++i) sum += values_[i] * other.values_[i];
    return group_sum<kLanes>(ex, sum);
  }
  /// this * keep + other * add.
  MOELINK_DEVICE void blend(float keep, const HeadLanes& other, float add) {
    MOELINK_UNROLL
    for (int i = 0; i < kSize; ++i) values_[i] = values_[i] * keep + other.values_[i] * add;
  }
  /// Times a number and a weight for each element.
  MOELINK_DEVICE void scale(float factor, const void* weights) {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (!holds(j)) continue;
      float weight[kWidth];
      load_chunk<E>(weights, chunk(j), weight);
      MOELINK_UNROLL
      for (int i = 0; i < kWidth; ++i) values_[j * kWidth + i] *= factor * weight[i];
    }
  }
  MOELINK_DEVICE void clamp(float limit) {
    MOELINK_UNROLL
    for (int i = 0; i < kSize; ++i) values_[i] = clamped(values_[i], limit);
  }
  /// Rotates element i with element i + dim / 2 by the angle whose cosine is angles[i] and sine angles[i + dim / 2].
  /// All lanes of the warp call.
  MOELINK_DEVICE void rotate(const float* angles) {
    float rotated[kSize];
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      const bool first_half = chunk(j) < kChunks / 2;
      MOELINK_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const int index = chunk(j) * kWidth + i;
        const int angle = first_half ? index : index - kDim / 2;
        const float other = partner(j, i, first_half);
        if (holds(j)) {
          const float cosine = angles[angle];
          const float sine = angles[angle + kDim / 2];
          rotated[j * kWidth + i] = values_[j * kWidth + i] * cosine + (first_half ? -other : other) * sine;
        } else {
          rotated[j * kWidth + i] = 0;
        }
      }
    }
    MOELINK_UNROLL
    for (int i = 0; i < kSize; ++i) values_[i] = rotated[i];
  }
  /// As floats, to shared memory.
  MOELINK_DEVICE void spill(float* head) const {
    MOELINK_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      if (!holds(j)) continue;
      MOELINK_UNROLL
      for (int i = 0; i < kWidth; ++i) head[chunk(j) * kWidth + i] = values_[j * kWidth + i];
    }
  }

 private:
  static constexpr Element kCached = cache_element(E);
  static constexpr int kSize = kChunksPerLane * kWidth;

  MOELINK_DEVICE int chunk(int j) const { return lane_ + j * kLanes; }
  MOELINK_DEVICE bool holds(int j) const { return kChunks % kLanes == 0 || chunk(j) < kChunks; }
  MOELINK_DEVICE float partner(int j, int i, bool first_half) const {
    if constexpr (kChunksPerLane == 1) {
      const int lane = group_ * kLanes + (first_half ? lane_ + kChunks / 2 : lane_ - kChunks / 2);
      return __shfl_sync(0xffffffffu, values_[i], lane & 31);
    } else {
      constexpr int kHalf = kChunks / 2 / kLanes;
      return values_[(j < kHalf ? j + kHalf : j - kHalf) * kWidth + i];
    }
  }

  int lane_ = 0;
  int group_ = 0;
  float values_[kSize] = {};
};

#else

template <Element E, class Exec, class S>
class HeadLanes {
 public:
  // NOLINTBEGIN(cppcoreguidelines-pro-type-member-init): load() or clear() fills two KB of values, as far as they are
  // used
  HeadLanes() = default;
  HeadLanes(const Exec&, S spec) : dim_(static_cast<int>(spec().head_dim)) {}
  // NOLINTEND(cppcoreguidelines-pro-type-member-init)

  static constexpr int groups_per_warp() { return 1; }
  static constexpr int group() { return 0; }

  void clear() {
    for (int i = 0; i < dim_; ++i) values_[i] = 0;
  }
  void load(const void* head) {
    for (i64 c = 0; c < dim_ / kWidth; ++c) load_chunk<kCached>(head, c, values_ + c * kWidth);
  }
  void store(void* head) const {
    for (i64 c = 0; c < dim_ / kWidth; ++c) {
      float chunk_values[kWidth];
      for (int i = 0; i < kWidth; ++i) chunk_values[i] = cacheable<E>(values_[c * kWidth + i]);
      store_chunk<kCached>(head, c, chunk_values);
    }
  }
  void load_floats(const float* head) {
    for (i64 c = 0; c < dim_ / kWidth; ++c) engine::load_floats<E>(head, c, values_ + c * kWidth);
  }
  void add_floats(const float* head) {
    for (int i = 0; i < dim_; ++i) values_[i] += head[i];
  }
  void store_floats(float* head) const {
    for (i64 c = 0; c < dim_ / kWidth; ++c) engine::store_floats<E>(head, c, values_ + c * kWidth);
  }
  float squares(const Exec&) const {
    float sums[kWidth] = {};
    for (i64 c = 0; c < dim_ / kWidth; ++c) {
      for (int i = 0; i < kWidth; ++i) sums[i] += values_[c * kWidth + i] * values_[c * kWidth + i];
    }
    return total(sums);
  }
  float dot(const Exec&, const HeadLanes& other) const {
    float sums[kWidth] = {};
    for (i64 c = 0; c < dim_ / kWidth; ++c) {
      for (int i = 0; i < kWidth; ++i) sums[i] += values_[c * kWidth + i] * other.values_[c * kWidth + i];
    }
    return total(sums);
  }
  void blend(float keep, const HeadLanes& other, float add) {
    for (int i = 0; i < dim_; ++i) values_[i] = values_[i] * keep + other.values_[i] * add;
  }
  void scale(float factor, const void* weights) {
    for (i64 c = 0; c < dim_ / kWidth; ++c) {
      float weight[kWidth];
      load_chunk<E>(weights, c, weight);
      for (int i = 0; i < kWidth; ++i) values_[c * kWidth + i] *= factor * weight[i];
    }
  }
  void clamp(float limit) {
    for (int i = 0; i < dim_; ++i) values_[i] = clamped(values_[i], limit);
  }
  void rotate(const float* angles) {
    const int half = dim_ / 2;
    for (int i = 0; i < half; ++i) {
      const float low = values_[i];
      const float high = values_[i + half];
      values_[i] = low * angles[i] - high * angles[i + half];
      values_[i + half] = high * angles[i] + low * angles[i + half];
    }
  }
  void spill(float* head) const {
    for (int i = 0; i < dim_; ++i) head[i] = values_[i];
  }

 private:
  static constexpr int kWidth = chunk_width(E);
  static constexpr Element kCached = cache_element(E);

  static float total(const float* sums) {
    float sum = 0;
    for (int i = 0; i < kWidth; ++i) sum += sums[i];
    return sum;
  }

  int dim_ = 0;
  float values_[kMaxHeadDim];
};

#endif

}  // namespace moelink::engine
