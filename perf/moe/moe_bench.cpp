#include "perf/moe/moe_bench.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "perf/common/random.hpp"
#include "perf/common/timing.hpp"
#include "perf/moe/ceiling.hpp"
#include "perf/moe/moe_set.hpp"
#include "perf/reference/naive.hpp"

namespace moelink::perf {
namespace {

constexpr std::size_t kDispatch = 0;
constexpr std::size_t kCombine = 1;
constexpr std::size_t kCopies = 2;
constexpr std::int64_t kSetsBytes = std::int64_t{256} << 20;  // several times any L2: no set finds its data there
constexpr int kMaxNaiveSamples = 5;

using Sets = std::vector<std::unique_ptr<MoeSet>>;

void add_traffic(const Sets& sets, MoeResult& result) {
  for (const auto& set : sets) {
    const MoeTraffic traffic = set->traffic();
    const auto share = 1.0 / static_cast<double>(sets.size());
    result.dispatch.logical_bytes += share * static_cast<double>(traffic.dispatch_logical);
    result.dispatch.moved_bytes += share * static_cast<double>(traffic.dispatch_moved);
    result.combine.logical_bytes += share * static_cast<double>(traffic.combine_logical);
    result.combine.moved_bytes += share * static_cast<double>(traffic.combine_moved);
  }
}

/// One round: dispatch, experts, combine on every set, run the way they are timed, and every value compared.
void check_round(Sets& sets, TimedTurns& turns, StreamView stream, Team& team, const MoeHooks& hooks,
                 Mismatches& dispatch, Mismatches& combine) {
  for (const auto& set : sets) set->poison();
  turns.run(kDispatch);
  for (const auto& set : sets) {
    if (hooks.after_dispatch) hooks.after_dispatch(set->rows(), stream);
    set->check_dispatch(team, dispatch);
    set->run_experts(team);
  }
  turns.run(kCombine);
  for (const auto& set : sets) {
    if (hooks.after_combine) hooks.after_combine(set->output(), stream);
    set->check_combine(team, combine);
  }
}

}  // namespace

MoeBench::MoeBench(const MoeFlags& flags, const MoeSettings& settings, const MoeHooks& hooks)
    : flags_(flags),
      settings_(settings),
      hooks_(hooks),
      communicator_(Communicator::single(settings.device)),
      team_(flags.place.threads),
      stream_(settings.device, {.num_threads = team_.size()}),
      limit_(stream_, team_) {}

int MoeBench::choose_num_sets(const Model& model, std::int64_t num_tokens) const {
  if (flags_.measure.num_sets != 0) return flags_.measure.num_sets;
  const std::int64_t bytes = std::max<std::int64_t>(MoeSet::estimate_bytes(settings_, model, num_tokens), 1);
  const bool host = settings_.device.is_host();
  // On CUDA even a large call is one of several, so that the events around them weigh little.
  const std::int64_t least = host ? 1 : bytes < (std::int64_t{4} << 30) ? 4 : 1;
  return static_cast<int>(std::clamp<std::int64_t>(kSetsBytes / bytes, least, host ? 8 : 32));
}

MoeResult MoeBench::run(const Model& model, std::int64_t num_tokens, Progress& progress) {
  MoeResult result;
  result.num_sets = choose_num_sets(model, num_tokens);
  progress.step("preparing");
  Sets sets;
  for (int i = 0; i < result.num_sets; ++i) {
    const std::uint64_t seed = derived_seed(settings_.seed, static_cast<std::uint64_t>(i));
    sets.push_back(std::make_unique<MoeSet>(settings_, model, num_tokens, seed, communicator_, stream_, team_));
  }
  result.plan = sets.front()->plan_text();
  add_traffic(sets, result);

  progress.step("timing, in turn with the copies it is compared with");
  const std::vector<CopyWork> copies = limit_.prepare(
      {static_cast<std::int64_t>(result.dispatch.moved_bytes), static_cast<std::int64_t>(result.combine.moved_bytes)},
      result.num_sets);
  TimedTurns turns(stream_,
                   {{.enqueue =
                         [&] {
                           for (const auto& set : sets) set->dispatch();
                         },
                     .num_calls = result.num_sets},
                    {.enqueue =
                         [&] {
                           for (const auto& set : sets) set->combine();
                         },
                     .num_calls = result.num_sets},
                    copies[kDispatch].work,
                    copies[kCombine].work},
                   flags_.measure.timing());
  const auto times = turns.time();
  result.dispatch.us = percentiles(times[kDispatch]);
  result.combine.us = percentiles(times[kCombine]);
  result.dispatch.limit_us = percentiles(times[kCopies + kDispatch]).p50 * copies[kDispatch].scale;
  result.combine.limit_us = percentiles(times[kCopies + kCombine]).p50 * copies[kCombine].scale;

  progress.step("timing kernels that only move the rows");
  const Ceilings ceilings = time_ceilings(sets, stream_, flags_.measure.timing());
  result.dispatch.ceiling_us = ceilings.expand_us;
  result.combine.ceiling_us = ceilings.gather_us;
  if (flags_.baseline == "naive") {
    progress.step("timing the plain loops");
    const NaiveTimes naive = time_naive(sets.front()->moe(), std::min(flags_.measure.samples, kMaxNaiveSamples), team_);
    result.dispatch.naive_us = percentiles(naive.dispatch_us).p50;
    result.combine.naive_us = percentiles(naive.combine_us).p50;
  }
  if (flags_.measure.check == 0) return result;

  Mismatches dispatch;
  Mismatches combine;
  for (int round = 0; round < flags_.measure.check; ++round) {
    progress.step("checking every value");
    check_round(sets, turns, stream_, team_, hooks_, dispatch, combine);
  }
  result.dispatch.wrong = dispatch.count();
  result.dispatch.first_wrong = dispatch.first();
  result.combine.wrong = combine.count();
  result.combine.first_wrong = combine.first();
  return result;
}

}  // namespace moelink::perf
