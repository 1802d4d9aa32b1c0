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
      const std::vector<std::int64_t>& wide = set->moe().plan->row_of_entry;
      const std::vector<std::int32_t> rows(wide.begin(), wide.end());
      places_.emplace_back(stream.device(), rows.size() * sizeof(std::int32_t));
      copy_bytes(places_.back().data(), rows.data(), rows.size() * sizeof(std::int32_t), stream);
      stream.synchronize();
      expand_.push_back(traffic(*set, set->tokens(), set->rows()));
      gather_.push_back(traffic(*set, set->output(), set->expert_output()));
    }
  }

  double best_expand_us(const TimingOptions& options) { return best_us(expand_, launch_expand, options); }
  double best_gather_us(const TimingOptions& options) { return best_us(gather_, launch_gather, options); }

 private:
  using Launch = void (*)(const RowTraffic&, RowGrid, void*);

  RowTraffic traffic(const MoeSet& set, MutableMatrixView tokens, MutableMatrixView rows) const {
    return {.token_rows = tokens.data,
            .expert_rows = rows.data,
            .row_of_entry = places_.back().as<std::int32_t>(),
            .num_tokens = tokens.rows,
            .top_k = set.moe().routing->top_k,
            .row_bytes = tokens.row_bytes()};
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
        best = std::min(best, percentiles(turns.time().front()).p50);
      }
    }
    return best;
  }

  StreamView stream_;
  std::vector<Buffer> places_;
  std::vector<RowTraffic> expand_;
  std::vector<RowTraffic> gather_;
};

}  // namespace

Ceilings time_ceilings(const std::vector<std::unique_ptr<MoeSet>>& sets, StreamView stream,
                       const TimingOptions& options) {
  if (stream.device().is_host() || sets.front()->tokens().rows == 0) return {};
  RowMoves moves(sets, stream);
  return {.expand_us = moves.best_expand_us(options), .gather_us = moves.best_gather_us(options)};
}

}  // namespace moelink::perf

#else

namespace moelink::perf {

Ceilings time_ceilings(const std::vector<std::unique_ptr<MoeSet>>&, StreamView, const TimingOptions&) { return {}; }

}  // namespace moelink::perf

#endif
