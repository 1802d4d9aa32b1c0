// A caller's array seen as 16-byte vectors: any length, any alignment of its elements. Vectors on the inside of an
// aligned array move by one access; the rest, and every vector of an array that is not 16-byte aligned, element by
// element. Elements past the end read as zero bits and are not written.
//
// How an array is read never shows in what peers see: lines and staging always hold whole vectors (rule 1 of the wire
// format: nothing a peer relies on depends on one rank's pointer).
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// `Byte` is `const u8` for an input, `u8` for an output.
template <class Byte>
class Message {
 public:
  MOELINK_DEVICE Message(Byte* data, i64 num_elements, Element element)
      : data_(data),
        size_bytes_(num_elements * bytes_of(element)),
        element_bytes_(bytes_of(element)),
        aligned_((reinterpret_cast<u64>(data) & 15U) == 0) {}

  MOELINK_DEVICE i64 num_vectors() const { return ceil_div<i64>(size_bytes_, 16); }

  /// Vectors that move by one access each: the first so many.
  MOELINK_DEVICE i64 num_whole_vectors() const { return aligned_ ? size_bytes_ / 16 : 0; }
  MOELINK_DEVICE const Vec16* whole_vectors() const { return reinterpret_cast<const Vec16*>(data_); }
  MOELINK_DEVICE void store_whole(i64 vector, const Vec16& value) const {
    *reinterpret_cast<Vec16*>(data_ + vector * 16) = value;
  }

  /// Zero bits past the end.
  MOELINK_DEVICE Vec16 load(i64 vector) const {
    if (is_whole(vector)) {
      return *reinterpret_cast<const Vec16*>(data_ + vector * 16);
    }
    return {word(vector, 0), word(vector, 1), word(vector, 2), word(vector, 3)};
  }

  MOELINK_DEVICE void store(i64 vector, const Vec16& value) const {
    if (is_whole(vector)) {
      store_whole(vector, value);
      return;
    }
    store_word(vector, 0, value.x);
    store_word(vector, 1, value.y);
    store_word(vector, 2, value.z);
    store_word(vector, 3, value.w);
  }

 private:
  MOELINK_DEVICE bool is_whole(i64 vector) const { return aligned_ && (vector + 1) * 16 <= size_bytes_; }

  MOELINK_DEVICE u32 word(i64 vector, int index) const {
    const i64 at = vector * 16 + index * 4;
    if (element_bytes_ == 4) {
      return at < size_bytes_ ? *reinterpret_cast<const u32*>(data_ + at) : 0U;
    }
    const u32 low = at < size_bytes_ ? *reinterpret_cast<const u16*>(data_ + at) : 0U;
    const u32 high = at + 2 < size_bytes_ ? *reinterpret_cast<const u16*>(data_ + at + 2) : 0U;
    return low | high << 16U;
  }

  MOELINK_DEVICE void store_word(i64 vector, int index, u32 value) const {
    const i64 at = vector * 16 + index * 4;
    if (element_bytes_ == 4) {
      if (at < size_bytes_) {
        *reinterpret_cast<u32*>(data_ + at) = value;
      }
      return;
    }
    if (at < size_bytes_) {
      *reinterpret_cast<u16*>(data_ + at) = static_cast<u16>(value);
    }
    if (at + 2 < size_bytes_) {
      *reinterpret_cast<u16*>(data_ + at + 2) = static_cast<u16>(value >> 16U);
    }
  }

  Byte* data_;
  i64 size_bytes_;
  int element_bytes_;
  bool aligned_;
};

}  // namespace moelink
