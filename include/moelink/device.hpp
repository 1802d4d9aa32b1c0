// Where work runs: a CUDA device or the host.
#pragma once

#include <compare>
#include <string>

#include "moelink/export.hpp"

namespace moelink {

/// A CUDA device by ordinal, or the host backend.
class MOELINK_EXPORT Device {
 public:
  [[nodiscard]] static constexpr Device host() noexcept { return Device(-1); }
  [[nodiscard]] static constexpr Device cuda(int ordinal) noexcept { return Device(ordinal); }

  /// CUDA device 0 if this build has CUDA and the machine has a device, else the host.
  [[nodiscard]] static Device best();

  /// Number of CUDA devices that can be used; 0 without a driver. Never throws.
  [[nodiscard]] static int cuda_count() noexcept;

  [[nodiscard]] constexpr bool is_host() const noexcept { return ordinal_ < 0; }
  [[nodiscard]] constexpr bool is_cuda() const noexcept { return ordinal_ >= 0; }
  /// CUDA ordinal; -1 for the host.
  [[nodiscard]] constexpr int ordinal() const noexcept { return ordinal_; }
  /// "host" or "cuda:0".
  [[nodiscard]] std::string name() const;

  friend constexpr auto operator<=>(const Device&, const Device&) noexcept = default;

 private:
  explicit constexpr Device(int ordinal) noexcept : ordinal_(ordinal) {}
  int ordinal_;
};

}  // namespace moelink
