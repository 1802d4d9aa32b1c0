// Devices that a test runs on, and moving data to and from them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"

namespace moelink::test {

/// A fixture run once for the host and once for the first GPU; the latter is skipped, and counted, where there is none.
///
///   MOELINK_TEST_ON_DEVICES(MyTest);   // after class MyTest : public DeviceTest
class DeviceTest : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  }
  [[nodiscard]] static Device device() { return GetParam(); }
  [[nodiscard]] static bool on_gpu() { return GetParam().is_cuda(); }
};

inline std::string device_test_name(const testing::TestParamInfo<Device>& info) {
  return info.param.is_host() ? "host" : "gpu";
}

#define MOELINK_TEST_ON_DEVICES(fixture)                                                                        \
  INSTANTIATE_TEST_SUITE_P(On, fixture, testing::Values(::moelink::Device::host(), ::moelink::Device::cuda(0)), \
                           ::moelink::test::device_test_name)

/// Host data in a buffer of the stream's device. Waits.
template <class T>
[[nodiscard]] Buffer upload(const std::vector<T>& data, StreamView stream) {
  Buffer buffer(stream.device(), data.size() * sizeof(T));
  copy_bytes(buffer.data(), data.data(), buffer.size_bytes(), stream);
  stream.synchronize();
  return buffer;
}

/// `count` elements of device memory, on the host. Waits for the stream.
template <class T>
[[nodiscard]] std::vector<T> download(const void* source, std::int64_t count, StreamView stream) {
  std::vector<T> data(static_cast<std::size_t>(count));
  copy_bytes(data.data(), source, data.size() * sizeof(T), stream);
  stream.synchronize();
  return data;
}

}  // namespace moelink::test
