// Offsets past 2^32 bytes: rows, strides and entries are 64-bit throughout. The memory is reserved, and few of its
// pages are ever touched.
#include <sys/mman.h>

#include "exchange/problem.hpp"
#include "moelink/error.hpp"
#include "support/device.hpp"

namespace moelink::test {
namespace {

/// Device memory of which most is never touched. Zero on the host.
class SparseMemory {
 public:
  SparseMemory(Device device, std::size_t size_bytes) : size_bytes_(size_bytes) {
    if (device.is_cuda()) {
      buffer_ = Buffer(device, size_bytes);
      data_ = buffer_.data();
      return;
    }
    data_ = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~SparseMemory() {
    if (buffer_.data() == nullptr) munmap(data_, size_bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  [[nodiscard]] unsigned char* data() const { return static_cast<unsigned char*>(data_); }

 private:
  std::size_t size_bytes_;
  Buffer buffer_;
  void* data_;
};

class LargeOffsets : public DeviceTest {};

constexpr std::int64_t kHidden = 7168;
constexpr std::int64_t kRowBytes = kHidden * 2;

/// One token for the last expert, whose rows start past 2^32 bytes: there and back.
void send_to_last_expert(Device device, const ExchangeConfig& config, Layout layout, std::int64_t rows,
                         std::int64_t expected_row, std::int64_t token_stride_bytes, std::int64_t num_tokens) {
  ASSERT_GT(expected_row * kRowBytes, std::int64_t{1} << 32);
  const Stream stream(device);
  Exchange exchange(Communicator::single(device), config);
  const SparseMemory row_memory(device, static_cast<std::size_t>(rows * kRowBytes));
  const SparseMemory token_memory(device, static_cast<std::size_t>(num_tokens * token_stride_bytes));
  const Buffer output(device, static_cast<std::size_t>(num_tokens * kRowBytes));

  // Only the last token goes anywhere.
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_tokens), -1);
  ids.back() = static_cast<std::int32_t>(config.num_experts - 1);
  const Buffer device_ids = upload(ids, stream);
  const Problem problem({.num_tokens = 1, .num_experts = 1, .top_k = 1, .hidden = kHidden}, {0});
  unsigned char* const last_token = token_memory.data() + (num_tokens - 1) * token_stride_bytes;
  copy_bytes(last_token, problem.tokens.data(), kRowBytes, stream);

  const ExpertBatch batch = exchange.dispatch({.tokens = {.data = token_memory.data(),
                                                          .rows = num_tokens,
                                                          .columns = kHidden,
                                                          .row_stride_bytes = token_stride_bytes},
                                               .expert_ids = {.data = device_ids.data()},
                                               .layout = layout,
                                               .alignment = layout == Layout::packed ? config.max_alignment : 1,
                                               .weight_mode = WeightMode::none,
                                               .rows = {.data = row_memory.data(), .rows = rows, .columns = kHidden}},
                                              stream);
  const auto offsets = download<std::int64_t>(batch.offsets, config.num_experts + 1, stream);
  ASSERT_EQ(offsets[static_cast<std::size_t>(config.num_experts - 1)], expected_row);
  EXPECT_EQ(download<unsigned char>(row_memory.data() + expected_row * kRowBytes, kRowBytes, stream), problem.tokens);

  exchange.combine(
      {.expert_output = batch.rows, .output = {.data = output.data(), .rows = num_tokens, .columns = kHidden}}, stream);
  EXPECT_EQ(download<unsigned char>(output.as<unsigned char>() + (num_tokens - 1) * kRowBytes, kRowBytes, stream),
            problem.tokens);
  EXPECT_NO_THROW(exchange.check());
}

TEST_P(LargeOffsets, BatchedRowsPastFourGigabytes) {
  const ExchangeConfig config{.num_experts = 256,
                              .top_k = 1,
                              .hidden = kHidden,
                              .max_tokens = 64,
                              .max_rows = 0,
                              .max_rows_per_expert = 1188,
                              .own_rows = false};
  send_to_last_expert(device(), config, Layout::batched, 256 * 1188, 255 * 1188, kRowBytes, 64);
}

TEST_P(LargeOffsets, TokensPastFourGigabytesByTheirStride) {
  const ExchangeConfig config{.num_experts = 256,
                              .top_k = 1,
                              .hidden = kHidden,
                              .max_tokens = 600,
                              .max_rows = 0,
                              .max_rows_per_expert = 1188,
                              .own_rows = false};
  for (const std::int64_t tokens : {5, 600}) {  // decode, and prefill
    const std::int64_t stride = (std::int64_t{5} << 30) / tokens / 16 * 16;
    send_to_last_expert(device(), config, Layout::batched, 256 * 1188, 255 * 1188, stride, tokens);
  }
}

TEST(LargeOffsetsByCounting, RowsOfThirtyEightThousandTokensAreMoreThanFourGigabytes) {
  const MemoryReport report = Exchange::memory(
      Communicator::single(Device::host()),
      {.num_experts = 256, .top_k = 8, .hidden = kHidden, .max_tokens = 38000, .own_expert_output = true});
  int found = 0;
  for (const MemoryItem& item : report.items) {
    if (item.name != "rows" && item.name != "expert_output") continue;
    EXPECT_EQ(item.bytes, std::int64_t{38000} * 8 * kHidden * 2) << item.name;
    ++found;
  }
  EXPECT_EQ(found, 2);
}

MOELINK_TEST_ON_DEVICES(LargeOffsets);

}  // namespace
}  // namespace moelink::test
