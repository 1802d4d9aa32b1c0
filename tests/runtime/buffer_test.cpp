#include "moelink/buffer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "moelink/error.hpp"

namespace moelink {
namespace {

TEST(Buffer, HostMemoryIsAlignedForAnyVectorWidth) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, std::size_t{4} << 20, (std::size_t{9} << 20) + 1}) {
    const Buffer buffer(Device::host(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
    EXPECT_EQ(buffer.size_bytes(), size);
    std::memset(buffer.data(), 1, size);
  }
}

TEST(Buffer, MoreMemoryThanThereIsIsACapacityError) {
  const auto code_of_size = [](std::size_t size) {
    try {
      const Buffer buffer(Device::host(), size);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::system;
  };
  EXPECT_EQ(code_of_size(std::numeric_limits<std::size_t>::max()), ErrorCode::capacity);
  EXPECT_EQ(code_of_size(std::numeric_limits<std::size_t>::max() / 2), ErrorCode::capacity);
}

TEST(Buffer, NothingIsAllocatedForZeroBytesAndMovesTransferOwnership) {
  Buffer empty(Device::host(), 0);
  EXPECT_EQ(empty.data(), nullptr);
  Buffer full(Device::host(), 16);
  void* memory = full.data();
  empty = std::move(full);
  EXPECT_EQ(empty.data(), memory);
  // NOLINTNEXTLINE(bugprone-use-after-move): what a move leaves behind is part of the contract
  EXPECT_EQ(full.data(), nullptr);
  EXPECT_EQ(full.size_bytes(), 0U);
}

}  // namespace
}  // namespace moelink
