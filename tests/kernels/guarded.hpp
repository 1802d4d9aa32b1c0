// Memory that shows when something was written beside it.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "moelink/protocol/types.hpp"

namespace moelink::test {

/// Bytes that must stay as they are, around what a kernel may write; 16-byte aligned inside.
class Guarded {
 public:
  Guarded() : Guarded(0, 0) {}
  Guarded(std::int64_t bytes, unsigned char fill)
      : bytes_(bytes), storage_((bytes + 15) / 16 + 2 * kGuardUnits, Vec16{}) {
    std::memset(storage_.data(), kGuard, storage_.size() * 16);
    std::memset(data(), fill, bytes);
  }
  unsigned char* data() { return reinterpret_cast<unsigned char*>(storage_.data() + kGuardUnits); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }
  [[nodiscard]] std::int64_t size() const { return bytes_; }
  [[nodiscard]] bool intact() {
    const auto* all = reinterpret_cast<const unsigned char*>(storage_.data());
    for (std::int64_t i = 0; i < kGuardUnits * 16; ++i) {
      if (all[i] != kGuard || data()[bytes_ + i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuardUnits = 8;
  static constexpr unsigned char kGuard = 0xa5;
  std::int64_t bytes_;
  std::vector<Vec16> storage_;
};

inline constexpr unsigned char kUntouched = 0xcd;  ///< what outputs hold before a run

}  // namespace moelink::test
