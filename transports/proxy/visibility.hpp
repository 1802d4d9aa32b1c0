// Step 5 of NOTE [remote visibility] (kernels/put/hand_over.cuh): what a CPU has to do between seeing that the NIC has
// written GPU memory and telling the GPU.
#pragma once

#include "moelink/device.hpp"

namespace moelink {

class RemoteWrites {
 public:
  /// Asks the platform. For memory of `device`; of the host there is nothing to do. Throws ErrorCode::unsupported where
  /// the platform neither orders these writes nor offers a flush.
  explicit RemoteWrites(Device device);

  [[nodiscard]] bool need_flush() const noexcept { return need_flush_; }
  /// Makes what the NIC has written so far visible to the device. Nothing where it needs no flush.
  void flush() const;

 private:
  Device device_;
  bool need_flush_ = false;
};

}  // namespace moelink
