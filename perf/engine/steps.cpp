#include "perf/engine/steps.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/files/weight_source.hpp"
#include "moelink/buffer.hpp"
#include "perf/common/statistics.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kPageSize = 16;

engine::ModelOptions options_of(const EngineSettings& settings) {
  const std::int64_t most_prefill = *std::max_element(settings.prefill.begin(), settings.prefill.end());
  const std::int64_t most_decode = *std::max_element(settings.decode.begin(), settings.decode.end());
  const std::int64_t positions = std::max(most_prefill, settings.context);
  const std::int64_t pages_of_sequence = (positions + kPageSize - 1) / kPageSize;
  return {.type = settings.type,
          .payload = settings.payload,
          .limits = {.max_rows = std::max(most_prefill, most_decode),
                     .max_decode_rows = most_decode,
                     .max_logit_rows = most_decode,
                     .max_sequences = most_decode,
                     .num_pages = pages_of_sequence * most_decode,
                     .page_size = kPageSize,
                     .max_positions = positions},
          .time_exchange = true};
}

/// The pages of sequence `index`, enough for `positions`.
std::vector<std::int32_t> pages_of(std::int64_t index, std::int64_t positions) {
  const std::int64_t count = (positions + kPageSize - 1) / kPageSize;
  std::vector<std::int32_t> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), static_cast<std::int32_t>(index * count));
  return pages;
}

}  // namespace

StepTimer::StepTimer(const EngineSettings& settings)
    : settings_(settings),
      model_(Communicator::single(settings.device), settings.config, engine::RandomWeights(settings.seed),
             options_of(settings)),
      stream_(settings.device) {}

double StepTimer::time_once_us(const std::function<void()>& step) {
  Event start(settings_.device);
  Event end(settings_.device);
  stream_.synchronize();
  start.record(stream_);
  step();
  end.record(stream_);
  end.synchronize();
  return end.since(start).count();
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
  StepResult result{.dispatch_share = percentiles(dispatches).p50, .combine_share = percentiles(combines).p50};
  if (capture) {
    model_.time_exchange(false);
    const Graph graph = Graph::record(stream_, run);
    totals.clear();
    for (int i = 0; i < settings_.samples; ++i) {
      totals.push_back(time_once_us([&] { graph.launch(stream_); }));
    }
    model_.time_exchange(true);
    result.captured = true;
  }
  result.step_us = percentiles(totals).p50;

  std::vector<float> logits(static_cast<std::size_t>(shape.num_logit_rows * settings_.config.vocab_size));
  copy_bytes(logits.data(), model_.logits().data, logits.size() * sizeof(float), stream_);
  stream_.synchronize();
  model_.check();
  result.finite = std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
  return result;
}

StepResult StepTimer::prefill(std::int64_t num_rows) {
  engine::Batch batch;
  batch.pages.push_back(pages_of(0, num_rows));
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const auto token = static_cast<engine::Token>((i * 7919 + 13) % settings_.config.vocab_size);
    batch.rows.push_back({.token = token, .position = static_cast<std::int32_t>(i), .sequence = 0});
  }
  batch.logit_rows.push_back(static_cast<std::int32_t>(num_rows - 1));
  return time(batch, false);
}

StepResult StepTimer::decode(std::int64_t num_rows) {
  engine::Batch batch;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const auto token = static_cast<engine::Token>((i * 7919 + 13) % settings_.config.vocab_size);
    batch.pages.push_back(pages_of(i, settings_.context));
    batch.rows.push_back({.token = token,
                          .position = static_cast<std::int32_t>(settings_.context - 1),
                          .sequence = static_cast<std::int32_t>(i)});
    batch.logit_rows.push_back(static_cast<std::int32_t>(i));
  }
  return time(batch, settings_.device.is_cuda());
}

}  // namespace moelink::perf
