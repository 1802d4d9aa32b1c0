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

template <class Exec, class S>
class ScalePart {
  static constexpr int kScaleBytes = S{}().scale_bytes;
  static constexpr int kUnitBytes = kScaleBytes == 0 ? 1 : min_of(16, kScaleBytes & -kScaleBytes);
  static constexpr int kUnits = kScaleBytes / kUnitBytes;
  using Unit = typename UnitOfBytes<kUnitBytes>::Type;

 public:
  MOELINK_DEVICE explicit ScalePart(S) {}

  /// By the block: begins to read one token's scales.
  MOELINK_DEVICE void load(const Exec& ex, const void* source) {
    if constexpr (kUnits != 0) {
      source_ = static_cast<const Unit*>(source);
      if (ex.thread() < kUnits) held_ = source_[ex.thread()];
    }
  }
  /// By the block: writes them to every row >= 0 of rows[0, count) (block scratch); `base` is row 0.
  MOELINK_DEVICE void store_all(const Exec& ex, u8* base, const i32* rows, int count) const {
    if constexpr (kUnits != 0) {
      for (int k = 0; k < count; ++k) {
        const i64 row = rows[k];
        if (row < 0) continue;
        Unit* units = reinterpret_cast<Unit*>(base + row * kScaleBytes);
        if (ex.thread() < kUnits) units[ex.thread()] = held_;
        for (int i = ex.thread() + ex.num_threads(); i < kUnits; i += ex.num_threads()) units[i] = source_[i];
      }
    }
  }
  /// By the block: writes them to one place, for a peer to read.
  MOELINK_DEVICE void send(const Exec& ex, void* place) const {
    if constexpr (kUnits != 0) {
      Unit* units = static_cast<Unit*>(place);
      if (ex.thread() < kUnits) units[ex.thread()] = held_;
      for (int i = ex.thread() + ex.num_threads(); i < kUnits; i += ex.num_threads()) units[i] = source_[i];
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
  const Unit* source_ = nullptr;
  Unit held_;
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
