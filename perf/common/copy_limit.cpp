#include "perf/common/copy_limit.hpp"

#include <algorithm>

#include "perf/common/payload.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kLargestCopyBytes = std::int64_t{1} << 30;

}  // namespace

void CopyLimit::reserve(std::int64_t bytes) {
  if (static_cast<std::int64_t>(from_.size_bytes()) >= bytes) return;
  from_ = Buffer();
  to_ = Buffer();
  const std::int64_t page = 4096;
  const std::int64_t rows = (bytes + page - 1) / page;
  from_ = Buffer(stream_.device(), static_cast<std::size_t>(rows * page));
  to_ = Buffer(stream_.device(), static_cast<std::size_t>(rows * page));
  upload({.type = DataType::bytes, .rows = rows, .row_bytes = page, .seed = 1}, from_.data(), stream_, team_);
  upload({.type = DataType::bytes, .rows = rows, .row_bytes = page, .seed = 2}, to_.data(), stream_, team_);
}

void CopyLimit::copy(std::int64_t set, std::int64_t bytes) {
  const std::byte* from = from_.as<std::byte>() + set * bytes;
  std::byte* to = to_.as<std::byte>() + set * bytes;
  if (stream_.device().is_cuda()) {
    copy_bytes(to, from, static_cast<std::size_t>(bytes), stream_);
    return;
  }
  team_.copy(to, from, bytes);
}

std::vector<CopyWork> CopyLimit::prepare(const std::vector<std::int64_t>& moved_bytes, int num_sets) {
  std::vector<CopyWork> works;
  std::int64_t most_bytes = 0;
  for (const std::int64_t moved : moved_bytes) {
    const std::int64_t wanted = moved / 2;  // a copy of n bytes reads n and writes n
    const std::int64_t copied = std::clamp<std::int64_t>(wanted / 16 * 16, 16, kLargestCopyBytes);
    const auto sets = static_cast<int>(std::clamp<std::int64_t>(kLargestCopyBytes / copied, 1, num_sets));
    const auto enqueue = [this, sets, copied] {
      for (int set = 0; set < sets; ++set) {
        copy(set, copied);
      }
    };
    works.push_back({.work = {.enqueue = enqueue, .num_calls = sets},
                     .scale = static_cast<double>(wanted) / static_cast<double>(copied)});
    most_bytes = std::max(most_bytes, copied * sets);
  }
  reserve(most_bytes);
  return works;
}

}  // namespace moelink::perf
