// Whether a pointer is memory that the device can use. Asking the driver costs 0.2 us a pointer, so that it is asked
// once for each pointer in use: engines pass the same ones over and over.
#pragma once

#include <array>
#include <cstddef>

#include "moelink/device.hpp"

namespace moelink {

class PointerCheck {
 public:
  explicit PointerCheck(Device device) noexcept : device_(device) {}

  /// Throws invalid_argument, naming the argument, if `pointer` (not null) is plain host memory or memory of another
  /// device. The host backend can only trust.
  void operator()(const char* name, const void* pointer) {
    if (device_.is_host() || pointer == nullptr || known_[slot_of(pointer)] == pointer) return;
    ask_driver(name, pointer);
    known_[slot_of(pointer)] = pointer;
  }

 private:
  static constexpr std::size_t kSlots = 64;
  /// Mixes the bits: buffers tend to differ in a few of them only.
  static std::size_t slot_of(const void* pointer) noexcept {
    return (reinterpret_cast<std::size_t>(pointer) * 0x9e3779b97f4a7c15U) >> 58U;
  }
  void ask_driver(const char* name, const void* pointer) const;

  Device device_;
  std::array<const void*, kSlots> known_{};
};

}  // namespace moelink
