#include "perf/moe/moe_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "perf/common/random.hpp"
#include "perf/common/ranks.hpp"
#include "perf/common/timing.hpp"
#include "perf/common/usage_error.hpp"
#include "perf/moe/ceiling.hpp"
#include "perf/moe/memory_limit.hpp"
#include "perf/reference/naive.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kSetsBytes = std::int64_t{256} << 20;  // several times any L2: no set finds its data there
constexpr int kMaxNaiveSamples = 5;

void add_share(const PhaseTraffic& traffic, double share, PhaseResult& result) {
  result.logical_bytes += share * static_cast<double>(traffic.logical);
  result.wire_bytes += share * static_cast<double>(traffic.wire);
  result.moved_bytes += share * static_cast<double>(traffic.moved);
}

void add_traffic(const MoeSets& sets, MoeResult& result) {
  for (const auto& set : sets) {
    const auto share = 1.0 / static_cast<double>(sets.size());
    add_share(set->traffic().dispatch, share, result.dispatch);
    add_share(set->traffic().combine, share, result.combine);
  }
}

std::vector<std::int64_t> bytes_of_phases(const MoeResult& result, double PhaseResult::*bytes) {
  return {static_cast<std::int64_t>(result.dispatch.*bytes), static_cast<std::int64_t>(result.combine.*bytes)};
}

}  // namespace

/// Which of the works that take turns belong to dispatch, or to combine.
struct PhaseTurns {
  std::vector<std::size_t> calls;  // one, or send and receive
  std::size_t copy = 0;
  double copy_scale = 0;
  std::optional<std::size_t> link;
  double link_scale = 0;
  std::optional<std::size_t> rival;
};

struct MoeBench::Turns {
  PhaseTurns dispatch;
  PhaseTurns combine;
  std::unique_ptr<TimedTurns> timed;

  void run(const std::vector<std::size_t>& works) const {
    for (const std::size_t work : works) timed->run(work);
  }
};

MoeBench::MoeBench(const MoeFlags& flags, const MoeSettings& settings, const Communicator& communicator,
                   const MoeHooks& hooks)
    : flags_(flags),
      settings_(settings),
      hooks_(hooks),
      communicator_(communicator),
      team_(threads_of_rank(communicator, flags.place)),
      stream_(settings.device, {.num_threads = team_.size()}),
      alignment_(communicator, stream_),
      limit_(stream_, team_),
      link_(communicator, stream_, team_) {
  if (const auto kind = collectives_of_baseline(flags.baseline)) {
    collectives_ =
        make_collectives(*kind, settings.said_transport(), communicator, stream_, team_, no_collectives_reason_);
  }
}

std::string MoeBench::baseline_words() const {
  const std::string name = baseline_name(flags_, settings_);
  if (!no_collectives_reason_.empty()) return fmt::format("{}: not possible: {}", name, no_collectives_reason_);
  return perf::baseline_words(name, settings_, collectives_.get());
}

int MoeBench::wanted_sets(const Model& model, const std::vector<std::int64_t>& tokens_of_source) const {
  if (flags_.measure.num_sets != 0) return flags_.measure.num_sets;
  const std::int64_t bytes = std::max<std::int64_t>(MoeSet::call_bytes(settings_, model, tokens_of_source), 1);
  const bool host = settings_.device.is_host();
  // On CUDA even a large call is one of several, so that the events around them weigh little.
  const std::int64_t least = host ? 1 : bytes < (std::int64_t{4} << 30) ? 4 : 1;
  return static_cast<int>(std::clamp<std::int64_t>(kSetsBytes / bytes, least, host ? 8 : 32));
}

int MoeBench::choose_num_sets(const Model& model, const std::vector<std::int64_t>& tokens_of_source) const {
  const int wanted = wanted_sets(model, tokens_of_source);
  const auto limit = memory_limit(communicator_, MoeSet::set_bytes(settings_, model, tokens_of_source, communicator_));
  const int needed = std::max(flags_.measure.num_sets, 1);
  if (limit && limit->most_sets < needed) {
    throw UsageError(fmt::format(
        "{} tokens of {} need {} on {} for {} rank(s) and {} set(s) of buffers, and {} are free; give fewer tokens, "
        "fewer ranks or --sets 1",
        text_of_tokens(tokens_of_source), model.name, text_of_bytes(limit->set_bytes * needed), limit->device,
        limit->num_ranks, needed, text_of_bytes(limit->available_bytes)));
  }
  return limit ? static_cast<int>(std::min<std::int64_t>(wanted, limit->most_sets)) : wanted;
}

MoeBench::Turns MoeBench::make_turns(MoeSets& sets, Rival* rival, MoeResult& result) {
  Turns turns;
  std::vector<TimedWork> works;
  const auto add = [&](TimedWork work) {
    works.push_back(std::move(work));
    return works.size() - 1;
  };
  const auto add_calls = [&](PhaseTurns& phase, void (MoeSet::*call)()) {
    const auto enqueue = [&sets, call] {
      for (const auto& set : sets) ((*set).*call)();
    };
    phase.calls.push_back(add({.enqueue = enqueue, .num_calls = result.num_sets}));
  };
  if (settings_.split) {
    add_calls(turns.dispatch, &MoeSet::dispatch_send);
    add_calls(turns.dispatch, &MoeSet::dispatch_receive);
    add_calls(turns.combine, &MoeSet::combine_send);
    add_calls(turns.combine, &MoeSet::combine_receive);
  } else {
    add_calls(turns.dispatch, &MoeSet::dispatch);
    add_calls(turns.combine, &MoeSet::combine);
  }

  const auto copies = limit_.prepare(bytes_of_phases(result, &PhaseResult::moved_bytes), result.num_sets);
  const auto links = link_.prepare(bytes_of_phases(result, &PhaseResult::wire_bytes), result.num_sets);
  PhaseTurns* phases[] = {&turns.dispatch, &turns.combine};
  for (std::size_t i = 0; i < 2; ++i) {
    phases[i]->copy = add(copies[i].work);
    phases[i]->copy_scale = copies[i].scale;
    if (links.empty()) continue;
    phases[i]->link = add(links[i].work);
    phases[i]->link_scale = links[i].scale;
  }
  if (rival != nullptr) {
    const auto add_rival = [&](void (Rival::*call)(std::size_t)) {
      const auto enqueue = [rival, call, count = sets.size()] {
        for (std::size_t set = 0; set < count; ++set) (rival->*call)(set);
      };
      return add({.enqueue = enqueue, .num_calls = result.num_sets});
    };
    turns.dispatch.rival = add_rival(&Rival::dispatch);
    turns.combine.rival = add_rival(&Rival::combine);
  }

  TimingOptions options = flags_.measure.timing();
  alignment_.add_to(options);
  turns.timed = std::make_unique<TimedTurns>(stream_, std::move(works), options);
  return turns;
}

void MoeBench::time(const Turns& turns, MoeResult& result) {
  std::vector<WorkTimes> times = turns.timed->time();
  for (WorkTimes& work : times) {
    work.us = slowest_of_ranks(communicator_, work.us);
    if (!work.host_us.empty()) work.host_us = slowest_of_ranks(communicator_, work.host_us);
  }
  const auto median = [&](std::size_t work) { return percentiles(times[work].us).p50; };
  const auto fill = [&](const PhaseTurns& phase, PhaseResult& to) {
    WorkTimes total = times[phase.calls.front()];
    if (phase.calls.size() == 2) {
      const WorkTimes& receive = times[phase.calls.back()];
      to.send_us = percentiles(total.us);
      to.receive_us = percentiles(receive.us);
      std::ranges::transform(total.us, receive.us, total.us.begin(), std::plus<>{});
      std::ranges::transform(total.host_us, receive.host_us, total.host_us.begin(), std::plus<>{});
    }
    to.us = percentiles(total.us);
    if (!total.host_us.empty()) to.host_us = percentiles(total.host_us);
    to.limit_us = median(phase.copy) * phase.copy_scale;
    if (phase.link) to.link_us = median(*phase.link) * phase.link_scale;
    if (phase.rival) to.baseline_us = median(*phase.rival);
  };
  fill(turns.dispatch, result.dispatch);
  fill(turns.combine, result.combine);
}

/// Of this rank.
struct MoeBench::Findings {
  Mismatches dispatch;
  Mismatches combine;
  RelativeError error;
};

/// One round: dispatch, experts, combine on every set, run the way they are timed, and every value compared.
void MoeBench::check_round(MoeSets& sets, const Turns& turns, Findings& findings) {
  const int rank = communicator_.rank();
  for (const auto& set : sets) set->poison();
  turns.run(turns.dispatch.calls);
  communicator_.barrier();  // nobody copies while another rank's kernels wait
  for (const auto& set : sets) {
    if (hooks_.after_dispatch) hooks_.after_dispatch(rank, set->rows(), stream_);
    set->check_dispatch(team_, findings.dispatch);
    set->run_experts(team_);
  }
  turns.run(turns.combine.calls);
  communicator_.barrier();
  for (const auto& set : sets) {
    if (hooks_.after_combine) hooks_.after_combine(rank, set->output(), stream_);
    set->check_combine(team_, findings.combine, findings.error);
  }
}

/// A baseline that does something else is none.
void MoeBench::check_rival(MoeSets& sets, const Turns& turns, Rival& rival) {
  Mismatches mismatches;
  for (const auto& set : sets) set->poison();
  turns.timed->run(*turns.dispatch.rival);
  communicator_.barrier();
  for (const auto& set : sets) {
    set->check_rows(team_, mismatches);
    set->run_experts(team_);
  }
  turns.timed->run(*turns.combine.rival);
  communicator_.barrier();
  for (std::size_t set = 0; set < sets.size(); ++set) rival.check_combine(set, team_, mismatches);
  if (const std::int64_t wrong = sum_over_ranks(communicator_, mismatches.count()); wrong != 0) {
    throw std::runtime_error(fmt::format("the baseline '{}' has {} wrong values{}", baseline_name(flags_, settings_),
                                         wrong, mismatches.count() != 0 ? ": " + mismatches.first() : ""));
  }
}

void MoeBench::check(MoeSets& sets, const Turns& turns, Rival* rival, MoeResult& result) {
  Findings findings;
  for (int round = 0; round < flags_.measure.check; ++round) check_round(sets, turns, findings);
  result.dispatch.wrong = sum_over_ranks(communicator_, findings.dispatch.count());
  result.dispatch.first_wrong = findings.dispatch.first();
  result.combine.wrong = sum_over_ranks(communicator_, findings.combine.count());
  result.combine.first_wrong = findings.combine.first();
  if (settings_.is_quantized()) {
    const RelativeError& error = findings.error;
    result.combine.error = RelativeError::of(sum_over_ranks(communicator_, error.squared_differences()),
                                             sum_over_ranks(communicator_, error.squared_values()));
  }
  if (rival != nullptr) check_rival(sets, turns, *rival);
}

std::optional<double> MoeBench::slowest(const std::optional<double>& mine) const {
  const double us = slowest_of_ranks(communicator_, {mine.value_or(0)}).front();
  return us != 0 ? std::optional(us) : std::nullopt;
}

MoeResult MoeBench::run(const Model& model, const std::vector<std::int64_t>& tokens_of_source, int num_sets,
                        Progress& progress) {
  MoeResult result;
  result.num_sets = num_sets;
  progress.step("preparing");
  MoeSets sets;
  for (int i = 0; i < result.num_sets; ++i) {
    const std::uint64_t seed = derived_seed(settings_.seed, static_cast<std::uint64_t>(i));
    sets.push_back(std::make_unique<MoeSet>(settings_, model, tokens_of_source, seed, communicator_, stream_, team_));
  }
  const std::unique_ptr<Rival> rival =
      make_rival(baseline_name(flags_, settings_), settings_, sets,
                 {.communicator = communicator_, .collectives = collectives_.get(), .stream = stream_, .team = team_});
  result.plan = sets.front()->plan_text();
  add_traffic(sets, result);

  progress.step("timing, in turn with what it is compared with");
  const Turns turns = make_turns(sets, rival.get(), result);
  time(turns, result);
  communicator_.barrier();  // nobody allocates while another rank's kernels wait

  progress.step("timing kernels that only move the rows");
  const Ceilings ceilings = time_ceilings(sets, stream_, flags_.measure.timing());
  result.dispatch.ceiling_us = slowest(ceilings.expand_us);
  result.combine.ceiling_us = slowest(ceilings.gather_us);
  if (flags_.baseline == "naive") {
    progress.step("timing the plain loops");
    const NaiveTimes naive = time_naive(sets.front()->moe(), std::min(flags_.measure.samples, kMaxNaiveSamples), team_);
    result.dispatch.baseline_us = percentiles(naive.dispatch_us).p50;
    result.combine.baseline_us = percentiles(naive.combine_us).p50;
  }
  progress.step("checking every value");
  if (flags_.measure.check != 0) check(sets, turns, rival.get(), result);
  communicator_.barrier();  // what peers may still read is freed next
  return result;
}

}  // namespace moelink::perf
