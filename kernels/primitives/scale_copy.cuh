// Moving the scale bytes of one token along with its row. Any number of bytes: units are as wide as divides them.
#pragma once

#include "moelink/protocol/types.hpp"
#if !MOELINK_ON_DEVICE
#include <cstring>
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

template <int kBytes>
struct UnitOfBytes;
template <>
struct UnitOfBytes<16> {
  using Type = Vec16;
};
template <>
struct UnitOfBytes<8> {
  using Type = u64;
};
template <>
struct UnitOfBytes<4> {
  using Type = u32;
};
template <>
struct UnitOfBytes<2> {
  using Type = u16;
};
template <>
struct UnitOfBytes<1> {
  using Type = u8;
};

/// What a thread of a block holds of a token's scales while they are on their way: a register's worth, or more where
/// there are too few threads.
constexpr int held_scale_bytes(int unit_bytes, int scale_bytes, int threads) {
  int bytes = min_of(unit_bytes, 4);
  while (bytes < unit_bytes && scale_bytes > bytes * threads) bytes *= 2;
  return bytes;
}

template <class Exec, class S>
class ScalePart {
  static constexpr int kScaleBytes = S{}().scale_bytes;
  static constexpr int kUnitBytes = kScaleBytes == 0 ? 1 : min_of(16, kScaleBytes & -kScaleBytes);
  static constexpr int kUnits = kScaleBytes / kUnitBytes;
  using Unit = typename UnitOfBytes<kUnitBytes>::Type;
  static constexpr int kHeldBytes = held_scale_bytes(kUnitBytes, kScaleBytes, S{}().threads);
  static constexpr int kHeldUnits = kScaleBytes / kHeldBytes;
  using Held = typename UnitOfBytes<kHeldBytes>::Type;

 public:
  MOELINK_DEVICE explicit ScalePart(S) {}

  /// By the block: begins to read one token's scales.
  MOELINK_DEVICE void load(const Exec& ex, const void* source) {
    if constexpr (kHeldUnits != 0) {
      source_ = static_cast<const Held*>(source);
      if (ex.thread() < kHeldUnits) held_ = source_[ex.thread()];
    }
  }
  /// By the block: writes them to every row >= 0 of rows[0, count) (block scratch); `base` is row 0.
  MOELINK_DEVICE void store_all(const Exec& ex, u8* base, const i32* rows, int count) const {
    if constexpr (kHeldUnits != 0) {
      for (int k = 0; k < count; ++k) {
        const i64 row = rows[k];
        if (row >= 0) send(ex, base + row * kScaleBytes);
      }
    }
  }
  /// By the block: writes them to one place.
  MOELINK_DEVICE void send(const Exec& ex, void* place) const {
    if constexpr (kHeldUnits != 0) {
      Held* held = static_cast<Held*>(place);
      if (ex.thread() < kHeldUnits) held[ex.thread()] = held_;
      for (int i = ex.thread() + ex.num_threads(); i < kHeldUnits; i += ex.num_threads()) held[i] = source_[i];
    }
  }
  /// By one thread: copies one token's scales.
  MOELINK_DEVICE void copy(void* place, const void* source) const {
    MOELINK_UNROLL
    for (int i = 0; i < kUnits; ++i) static_cast<Unit*>(place)[i] = static_cast<const Unit*>(source)[i];
  }
  /// By one warp: zeroes one token's scales.
  MOELINK_DEVICE void clear(const Exec& ex, void* place) const {
    for (int i = ex.lane(); i < kUnits; i += 32) static_cast<Unit*>(place)[i] = Unit{};
  }

 private:
  const Held* source_ = nullptr;
  Held held_;
};

#else

template <class Exec, class S>
class ScalePart {
 public:
  explicit ScalePart(S spec) : bytes_(spec().scale_bytes) {}
  void load(const Exec&, const void* source) { source_ = source; }
  void store_all(const Exec&, u8* base, const i32* rows, int count) const {
    for (int k = 0; k < count; ++k) {
      if (rows[k] >= 0) copy(base + static_cast<i64>(rows[k]) * bytes_, source_);
    }
  }
  void send(const Exec&, void* place) const { copy(place, source_); }
  void copy(void* place, const void* source) const {
    if (bytes_ != 0) std::memcpy(place, source, static_cast<u64>(bytes_));
  }
  void clear(const Exec&, void* place) const {
    if (bytes_ != 0) std::memset(place, 0, static_cast<u64>(bytes_));
  }

 private:
  i32 bytes_;
  const void* source_ = nullptr;
};

#endif

}  // namespace moelink
