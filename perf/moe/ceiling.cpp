#include "perf/moe/ceiling.hpp"

#if MOELINK_PERF_HAVE_CEILINGS

#include <algorithm>
#include <limits>

#include "perf/ceiling/row_kernels.hpp"
#include "perf/common/statistics.hpp"

namespace moelink::perf {
namespace {

constexpr int kResidentThreads = 2048;  // of one multiprocessor

/// The rows of all sets, for one of the two kernels.
class RowMoves {
 public:
  RowMoves(const std::vector<std::unique_ptr<MoeSet>>& sets, StreamView stream) : stream_(stream) {
    for (const auto& set : sets) {
      const std::vector<std::int32_t> rows = rows_of_tokens(set->moe());
      if (rows.empty()) continue;
      buffers_.emplace_back(stream.device(), rows.size() * sizeof(std::int32_t));
      const auto* places = buffers_.back().as<std::int32_t>();
      copy_bytes(buffers_.back().data(), rows.data(), rows.size() * sizeof(std::int32_t), stream);
      stream.synchronize();
      const int top_k = set->moe().sources->top_k();
      const auto num_tokens = static_cast<std::int64_t>(rows.size()) / top_k;
      // Where tokens are longer than rows, because dispatch quantises them, it is the rows that are moved.
      const auto traffic = [&](MutableMatrixView tokens, MutableMatrixView expert_rows) {
        return RowTraffic{.token_rows = room_for(num_tokens, tokens),
                          .expert_rows = expert_rows.data,
                          .row_of_entry = places,
                          .num_tokens = num_tokens,
                          .top_k = top_k,
                          .row_bytes = expert_rows.row_bytes()};
      };
      expand_.push_back(traffic(set->tokens(), set->rows()));
      gather_.push_back(traffic(set->output(), set->expert_output()));
    }
  }

  [[nodiscard]] bool empty() const noexcept { return expand_.empty(); }
  double best_expand_us(const TimingOptions& options) { return best_us(expand_, launch_expand, options); }
  double best_gather_us(const TimingOptions& options) { return best_us(gather_, launch_gather, options); }

 private:
  using Launch = void (*)(const RowTraffic&, RowGrid, void*);

  /// [tokens with a row here, top_k] the rows of each, -1 where an entry has none.
  static std::vector<std::int32_t> rows_of_tokens(const MoeCase& moe) {
    const std::vector<std::int64_t>& all = moe.plan->row_of_entry;
    const auto top_k = static_cast<std::ptrdiff_t>(moe.sources->top_k());
    std::vector<std::int32_t> rows;
    for (auto token = all.begin(); token != all.end(); token += top_k) {
      if (std::any_of(token, token + top_k, [](std::int64_t row) { return row >= 0; })) {
        rows.insert(rows.end(), token, token + top_k);
      }
    }
    return rows;
  }

  /// The matrix if it has so many rows, else memory like it that does.
  void* room_for(std::int64_t num_tokens, const MutableMatrixView& matrix) {
    if (num_tokens <= matrix.rows) return matrix.data;
    buffers_.emplace_back(stream_.device(), static_cast<std::size_t>(num_tokens * matrix.row_bytes()));
    fill_bytes(buffers_.back().data(), 0x3C, buffers_.back().size_bytes(), stream_);
    stream_.synchronize();
    return buffers_.back().data();
  }

  double best_us(const std::vector<RowTraffic>& moves, Launch launch, const TimingOptions& options) {
    const int multiprocessors = prepare_row_kernels(stream_.device().ordinal());
    double best = std::numeric_limits<double>::max();
    for (const int threads : {128, 256, 512, 1024}) {
      for (const int max_blocks : {0, multiprocessors * kResidentThreads / threads}) {
        const auto enqueue = [&] {
          for (const RowTraffic& move : moves) launch(move, {threads, max_blocks}, stream_.cuda_handle());
        };
        TimedTurns turns(stream_, {{.enqueue = enqueue, .num_calls = static_cast<int>(moves.size())}}, options);
        best = std::min(best, percentiles(turns.time().front().us).p50);
      }
    }
    return best;
  }

  StreamView stream_;
  std::vector<Buffer> buffers_;
  std::vector<RowTraffic> expand_;
  std::vector<RowTraffic> gather_;
};

}  // namespace

Ceilings time_ceilings(const std::vector<std::unique_ptr<MoeSet>>& sets, StreamView stream,
                       const TimingOptions& options) {
  if (stream.device().is_host()) return {};
  RowMoves moves(sets, stream);
  if (moves.empty()) return {};
  return {.expand_us = moves.best_expand_us(options), .gather_us = moves.best_gather_us(options)};
}

}  // namespace moelink::perf

#else

namespace moelink::perf {

Ceilings time_ceilings(const std::vector<std::unique_ptr<MoeSet>>&, StreamView, const TimingOptions&) { return {}; }

}  // namespace moelink::perf

#endif
