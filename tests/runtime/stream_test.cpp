// Streams, events and graphs through the public API, on the host and, where there is one, on a GPU.
#include "moelink/stream.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "moelink/buffer.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

ErrorCode code_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "the call was accepted";
  return ErrorCode::system;
}

TEST(Device, NamesItself) {
  EXPECT_EQ(Device::host().name(), "host");
  EXPECT_EQ(Device::cuda(3).name(), "cuda:3");
  EXPECT_EQ(Device::best().is_cuda(), Device::cuda_count() > 0);
}

TEST(Stream, ACudaDeviceThatDoesNotExistIsAClearError) {
  const ErrorCode code = code_of([] { Stream stream(Device::cuda(Device::cuda_count())); });
  EXPECT_TRUE(code == ErrorCode::unsupported || code == ErrorCode::invalid_argument);
}

TEST(Stream, TheLegacyDefaultStreamIsRefused) {
  if (Device::cuda_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const StreamView legacy = StreamView::cuda(Device::cuda(0), nullptr);
  EXPECT_EQ(code_of([&] { legacy.synchronize(); }), ErrorCode::invalid_argument);
}

TEST(Stream, RefusesAbsurdNumbersOfHostThreads) {
  EXPECT_EQ(code_of([] { Stream stream(Device::host(), {.num_threads = -1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { Stream stream(Device::host(), {.num_threads = 1 << 20}); }), ErrorCode::invalid_argument);
}

TEST(Graph, HostStreamsCannotBeCaptured) {
  const Stream stream(Device::host());
  EXPECT_EQ(code_of([&] { (void)Graph::record(stream, [] {}); }), ErrorCode::unsupported);
}

TEST(Graph, ReplaysWhatWasRecordedAndNothingElse) {
  if (Device::cuda_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const Device device = Device::cuda(0);
  const Stream stream(device);
  const Buffer buffer(device, 256);
  fill_bytes(buffer.data(), 1, 256, stream);
  const Graph graph = Graph::record(stream, [&] { fill_bytes(buffer.data(), 2, 128, stream); });
  std::vector<unsigned char> seen(256);
  copy_bytes(seen.data(), buffer.data(), 256, stream);
  stream.synchronize();
  EXPECT_EQ(seen[0], 1) << "recording ran the work";
  for (int i = 0; i < 1000; ++i) {
    graph.launch(stream);
  }
  copy_bytes(seen.data(), buffer.data(), 256, stream);
  stream.synchronize();
  EXPECT_EQ(seen[127], 2);
  EXPECT_EQ(seen[128], 1);
}

TEST(Graph, AnExceptionWhileRecordingLeavesTheStreamUsable) {
  if (Device::cuda_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const Stream stream(Device::cuda(0));
  const Buffer buffer(Device::cuda(0), 16);
  EXPECT_THROW((void)Graph::record(stream,
                                   [&] {
                                     fill_bytes(buffer.data(), 2, 16, stream);
                                     throw std::runtime_error("the caller's");
                                   }),
               std::runtime_error);
  fill_bytes(buffer.data(), 3, 16, stream);
  stream.synchronize();
}

class StreamOn : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StreamOn, testing::Values(Device::host(), Device::cuda(0)),
                         [](const auto& tested) { return std::string(tested.param.is_host() ? "host" : "cuda"); });

TEST_P(StreamOn, CopiesAndFillsOfAnySizeHappenInOrder) {
  const Stream stream(GetParam(), {.num_threads = 3});
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{1} << 20, (std::size_t{5} << 20) + 13}) {
    const Buffer a(GetParam(), size + 1);
    const Buffer b(GetParam(), size + 1);
    std::vector<unsigned char> input(size);
    for (std::size_t i = 0; i < size; ++i) {
      input[i] = static_cast<unsigned char>(i * 7 + i / 251);
    }
    std::vector<unsigned char> output(size + 1, 0xEE);
    fill_bytes(b.data(), 0xAB, size + 1, stream);
    copy_bytes(a.data(), input.data(), size, stream);
    copy_bytes(b.data(), a.data(), size, stream);
    copy_bytes(output.data(), b.data(), size + 1, stream);
    stream.synchronize();
    EXPECT_EQ(std::memcmp(output.data(), input.data(), size), 0) << size;
    EXPECT_EQ(output[size], 0xAB) << "a copy of " << size << " bytes wrote past its end";
  }
}

TEST_P(StreamOn, EventsMeasureTheTimeBetweenThem) {
  const Stream stream(GetParam());
  const Buffer buffer(GetParam(), std::size_t{8} << 20);
  Event start(GetParam());
  Event stop(GetParam());
  for (int round = 0; round < 3; ++round) {
    start.record(stream);
    fill_bytes(buffer.data(), 1, buffer.size_bytes(), stream);
    stop.record(stream);
    stop.synchronize();
    EXPECT_GT(stop.since(start).count(), 0.0);
    EXPECT_LE(start.since(stop).count(), 0.0);
  }
}

TEST_P(StreamOn, AnEventMayGoBeforeItsStreamHasPassedIt) {
  const Stream stream(GetParam());
  {
    Event event(GetParam());
    event.record(stream);
  }
  stream.synchronize();
}

TEST_P(StreamOn, MovesLeaveNothingBehind) {
  Stream a(GetParam());
  Stream b(std::move(a));
  a = Stream(GetParam());
  b = std::move(a);
  Buffer buffer(GetParam(), 64);
  void* data = buffer.data();
  Buffer moved(std::move(buffer));
  EXPECT_EQ(moved.data(), data);
  fill_bytes(moved.data(), 1, 64, b);
  b.synchronize();
}

TEST(Event, TheTimeToAnEventThatWasNeverRecordedIsAnError) {
  const Stream stream(Device::host());
  Event start(Device::host());
  const Event never(Device::host());
  start.record(stream);
  stream.synchronize();
  EXPECT_EQ(code_of([&] { (void)never.since(start); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace moelink
