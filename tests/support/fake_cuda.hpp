// A CUDA driver for machines without a GPU: the table of src/base/cuda_driver.hpp, filled with functions that keep the
// driver's rules (who maps what, in which order, with which alignment) over host memory. "Device" pointers are host
// pointers, so tests can look. It counts what is held and can fail any call that acquires something.
#pragma once

#if MOELINK_HAVE_CUDA

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/cuda_driver.hpp"

namespace moelink::test {

/// What one device of the fake can do.
struct FakeDevice {
  std::uint8_t uuid = 0;  ///< the first byte; 0: ordinal + 1
  bool virtual_memory = true;
  bool descriptors = true;
  bool fabric = false;
  bool multicast = false;
  bool peer_access = true;
};

/// The driver while it lives; one at a time. All its state is in this process: descriptors it exports are real ones, so
/// they travel over sockets, but only between ranks that are threads. Thread-safe.
class FakeCuda {
 public:
  static constexpr std::size_t kGranularityBytes = std::size_t{2} << 20;

  explicit FakeCuda(std::vector<FakeDevice> devices = {FakeDevice{}});
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  [[nodiscard]] const CudaDriver& driver() const noexcept { return driver_; }

  /// The `n`-th call from now on that acquires or checks something (1: the next) fails with `result`; 0: none. Calls
  /// that give something back never fail.
  void fail_call(int n, CUresult result = CUDA_ERROR_OUT_OF_MEMORY);
  /// Calls of that kind since the last fail_call().
  [[nodiscard]] int num_calls() const;
  /// Names of all calls so far that acquire, give back or order something: "cuMemCreate", ...
  [[nodiscard]] std::vector<std::string> calls() const;
  /// What is held now, a line each: "2 memory handle(s)". Empty if nothing is.
  [[nodiscard]] std::string held() const;
  /// What the library did against the driver's rules, a line each ("cuMemMap of ... that is mapped").
  [[nodiscard]] std::string broken_rules() const;

 private:
  CudaDriver driver_;
};

}  // namespace moelink::test

#endif
