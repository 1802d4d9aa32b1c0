#include "perf/engine/steps.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/files/weight_source.hpp"
#include "moelink/buffer.hpp"
#include "perf/common/ranks.hpp"
#include "perf/common/statistics.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kPageSize = 16;

engine::ModelOptions options_of(const EngineSettings& settings) {
  const std::int64_t most_prefill = *std::max_element(settings.prefill.begin(), settings.prefill.end());
  const std::int64_t most_decode = *std::max_element(settings.decode.begin(), settings.decode.end());
  const std::int64_t positions = std::max(most_prefill, settings.context);
  const std::int64_t pages_of_sequence = (positions + kPageSize - 1) / kPageSize;
  engine::ModelOptions options = settings.model;
  options.limits = {.max_rows = std::max(most_prefill, most_decode),
                    .max_decode_rows = most_decode,
                    .max_logit_rows = most_decode,
                    .max_sequences = most_decode,
                    .num_pages = pages_of_sequence * most_decode,
                    .page_size = kPageSize,
                    .max_positions = positions};
  options.time_exchange = true;
  return options;
}

/// The pages of sequence `index`, enough for `positions`.
std::vector<std::int32_t> pages_of(std::int64_t index, std::int64_t positions) {
  const std::int64_t count = (positions + kPageSize - 1) / kPageSize;
  std::vector<std::int32_t> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), static_cast<std::int32_t>(index * count));
  return pages;
}

}  // namespace

StepTimer::StepTimer(const Communicator& communicator, const EngineSettings& settings)
    : communicator_(communicator),
      settings_(settings),
      model_(communicator, settings.config, engine::RandomWeights(settings.seed), options_of(settings)),
      stream_(communicator.device(), {.num_threads = settings.threads}),
      start_(communicator.device()),
      end_(communicator.device()),
      alignment_(communicator, stream_) {
  alignment_.add_to(aligned_);
}

double StepTimer::time_once_us(const std::function<void()>& step) {
  stream_.synchronize();
  if (aligned_.align) aligned_.align();
  if (aligned_.align_on_device) aligned_.align_on_device();
  start_.record(stream_);
  step();
  end_.record(stream_);
  end_.synchronize();
  return end_.since(start_).count();
}

/// Of the captured step. Capturing allocates, which waits for the kernels of a GPU, so that none may wait for another
/// rank meanwhile: all capture between two barriers. The graph ends behind the gathering of times.
double StepTimer::time_replays_us(const std::function<void()>& step) {
  model_.time_exchange(false);
  stream_.synchronize();
  communicator_.barrier();
  const Graph graph = Graph::record(stream_, step);
  std::vector<double> totals;
  for (int i = 0; i < settings_.samples; ++i) {
    totals.push_back(time_once_us([&] { graph.launch(stream_); }));
  }
  model_.time_exchange(true);
  return median_of_slowest(totals);
}

double StepTimer::median_of_slowest(const std::vector<double>& mine) const {
  return percentiles(slowest_of_ranks(communicator_, mine)).p50;
}

double StepTimer::mean_of_ranks(double mine) const {
  return sum_over_ranks(communicator_, mine) / communicator_.size();
}

StepResult StepTimer::time(const engine::Batch& batch, bool capture) {
  const engine::StepShape shape = engine::shape_of(batch);
  model_.load(batch, stream_);
  const auto run = [&] { model_.run(shape, stream_); };
  std::vector<double> totals;
  std::vector<double> dispatches;
  std::vector<double> combines;
  constexpr int kWarmup = 3;
  for (int i = 0; i < settings_.samples + kWarmup; ++i) {
    const double total_us = time_once_us(run);
    if (i < kWarmup) continue;
    const auto exchange = model_.exchange_time();
    totals.push_back(total_us);
    dispatches.push_back(exchange.dispatch_us / total_us);
    combines.push_back(exchange.combine_us / total_us);
  }
  StepResult result{.dispatch_share = mean_of_ranks(percentiles(dispatches).p50),
                    .combine_share = mean_of_ranks(percentiles(combines).p50),
                    .captured = capture};
  result.step_us = capture ? time_replays_us(run) : median_of_slowest(totals);

  std::vector<float> logits(static_cast<std::size_t>(shape.num_logit_rows * settings_.config.vocab_size));
  model_.copy_logits(logits, stream_);
  stream_.synchronize();
  model_.check();
  const bool finite = std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
  result.num_wrong = sum_over_ranks(communicator_, std::int64_t{finite ? 0 : 1});
  return result;
}

/// Ranks with rows of their own have different ones.
engine::Token StepTimer::token_of(std::int64_t row, std::int64_t num_rows) const {
  const std::int64_t index = row + (settings_.has_rows_of_its_own() ? communicator_.rank() * num_rows : 0);
  return static_cast<engine::Token>((index * 7919 + 13) % settings_.config.vocab_size);
}

StepResult StepTimer::prefill(std::int64_t num_rows) {
  engine::Batch batch;
  batch.pages.push_back(pages_of(0, num_rows));
  for (std::int64_t i = 0; i < num_rows; ++i) {
    batch.rows.push_back({.token = token_of(i, num_rows), .position = static_cast<std::int32_t>(i), .sequence = 0});
  }
  batch.logit_rows.push_back(static_cast<std::int32_t>(num_rows - 1));
  return time(batch, false);
}

StepResult StepTimer::decode(std::int64_t num_rows) {
  engine::Batch batch;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    batch.pages.push_back(pages_of(i, settings_.context));
    batch.rows.push_back({.token = token_of(i, num_rows),
                          .position = static_cast<std::int32_t>(settings_.context - 1),
                          .sequence = static_cast<std::int32_t>(i)});
    batch.logit_rows.push_back(static_cast<std::int32_t>(i));
  }
  return time(batch, stream_.device().is_cuda());
}

}  // namespace moelink::perf
