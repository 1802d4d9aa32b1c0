#include "perf/moe/link_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <system_error>

#include "perf/common/payload.hpp"

#if MOELINK_PERF_HAVE_CEILINGS
#include "perf/ceiling/row_kernels.hpp"
#endif

namespace moelink::perf {
namespace {

constexpr std::int64_t kLargestCopyBytes = std::int64_t{256} << 20;
constexpr std::int64_t kRowBytes = 16384;  // what kernels store at a time; every offset is a multiple

std::string first_of(const std::vector<std::string>& words) {
  const auto first = std::ranges::find_if(words, [](const std::string& word) { return !word.empty(); });
  return first == words.end() ? "" : *first;
}

/// Everyone's words, in rank order.
std::vector<std::string> gather_words(const Communicator& communicator, const std::string& mine) {
  std::vector<std::string> all;
  for (const auto& words : communicator.all_gather(std::as_bytes(std::span(mine)))) {
    all.emplace_back(reinterpret_cast<const char*>(words.data()), words.size());
  }
  return all;
}

}  // namespace

LinkLimit::LinkLimit(const Communicator& communicator, StreamView stream, Team& team)
    : communicator_(communicator), stream_(stream), team_(team) {
  reason_ = first_of(gather_words(communicator, obstacle()));
  if (reason_.empty() && stream.device().is_host()) map_next();
}

/// Why this rank cannot store to the next one.
std::string LinkLimit::obstacle() {
  const Topology& topology = communicator_.topology();
  const int rank = communicator_.rank();
  const int next = next_rank();
  if (communicator_.size() == 1) return "there is one rank";
  if (topology.node_of(rank) != topology.node_of(next)) {
    return fmt::format("ranks {} and {} are on two nodes", rank, next);
  }
  const Device here = communicator_.device();
  if (here.is_host()) return "";
  if (!topology.same_process(rank, next)) return "ranks are in several processes; give --ranks instead of a launcher";
#if MOELINK_PERF_HAVE_CEILINGS
  const Device there = topology.rank(next).device;
  if (here == there || enable_peer(here.ordinal(), there.ordinal())) return "";
  return fmt::format("{} cannot store to {}", here.name(), there.name());
#else
  return "this build has no kernels that store: it was made without nvcc";
#endif
}

/// On the host: memory that grows as it is used, which the rank before this one maps.
void LinkLimit::map_next() {
  std::string trouble;
  mine_ = SharedPages(kLargestCopyBytes);
  const std::vector<std::string> paths = gather_words(communicator_, mine_.path());
  try {
    next_ = SharedPages(paths[static_cast<std::size_t>(next_rank())], kLargestCopyBytes);
    peer_ = next_.data();
  } catch (const std::system_error& error) {
    trouble =
        fmt::format("rank {} cannot map the memory of rank {}: {}", communicator_.rank(), next_rank(), error.what());
  }
  reason_ = first_of(gather_words(communicator_, trouble));
}

void LinkLimit::reserve(std::int64_t bytes) {
  if (static_cast<std::int64_t>(from_.size_bytes()) >= bytes) return;
  communicator_.barrier();  // nobody stores to the old one any more
  const std::int64_t rows = (bytes + kRowBytes - 1) / kRowBytes;
  const RandomMatrix data{.type = DataType::bytes, .rows = rows, .row_bytes = kRowBytes, .seed = 1};
  from_ = Buffer();
  from_ = Buffer(stream_.device(), static_cast<std::size_t>(rows * kRowBytes));
  upload(data, from_.data(), stream_, team_);
  if (stream_.device().is_cuda()) {
    reserve_device(rows);
  } else {
    upload(data, mine_.data(), stream_, team_);  // its pages are there when others store
  }
  communicator_.barrier();
}

void LinkLimit::reserve_device(std::int64_t rows) {
  to_ = Buffer();
  to_ = Buffer(stream_.device(), from_.size_bytes());
  std::vector<std::int32_t> places(static_cast<std::size_t>(rows));
  std::iota(places.begin(), places.end(), 0);
  places_ = Buffer(stream_.device(), places.size() * sizeof(std::int32_t));
  copy_bytes(places_.data(), places.data(), places.size() * sizeof(std::int32_t), stream_);
  stream_.synchronize();
  const void* mine = to_.data();
  const auto all = communicator_.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::memcpy(&peer_, all[static_cast<std::size_t>(next_rank())].data(), sizeof(peer_));
}

void LinkLimit::copy(std::int64_t offset, std::int64_t bytes) {
  std::byte* from = from_.as<std::byte>() + offset;
  std::byte* to = peer_ + offset;
#if MOELINK_PERF_HAVE_CEILINGS
  if (stream_.device().is_cuda()) {
    const std::int64_t row_bytes = std::min(bytes, kRowBytes);
    launch_expand({.token_rows = from,
                   .expert_rows = to,
                   .row_of_entry = places_.as<std::int32_t>(),
                   .num_tokens = bytes / row_bytes,
                   .top_k = 1,
                   .row_bytes = row_bytes},
                  {.threads = 1024, .max_blocks = 0}, stream_.cuda_handle());
    return;
  }
#endif
  team_.copy(to, from, bytes);
}

std::vector<CopyWork> LinkLimit::prepare(const std::vector<std::int64_t>& wire_bytes, int num_sets) {
  if (!reason_.empty()) return {};
  std::vector<CopyWork> works;
  std::int64_t most_bytes = 0;
  for (const std::int64_t wanted : wire_bytes) {
    // Whole rows, or a part of one in units of 16 bytes; the scale makes up for what is left out.
    const std::int64_t unit = wanted < kRowBytes ? 16 : kRowBytes;
    const std::int64_t copied = std::clamp<std::int64_t>(wanted / unit * unit, 16, kLargestCopyBytes);
    const std::int64_t pitch = (copied + kRowBytes - 1) / kRowBytes * kRowBytes;
    const auto sets = static_cast<int>(std::clamp<std::int64_t>(kLargestCopyBytes / pitch, 1, num_sets));
    const auto enqueue = [this, sets, copied, pitch] {
      for (int set = 0; set < sets; ++set) copy(set * pitch, copied);
    };
    works.push_back({.work = {.enqueue = enqueue, .num_calls = sets},
                     .scale = static_cast<double>(wanted) / static_cast<double>(copied)});
    most_bytes = std::max(most_bytes, pitch * sets);
  }
  reserve(most_bytes);
  return works;
}

}  // namespace moelink::perf
