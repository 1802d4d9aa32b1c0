#include "engine/requests/engine.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

#include "engine/base/text.hpp"
#include "engine/requests/active_request.hpp"
#include "engine/requests/scheduler.hpp"
#include "engine/requests/step_graphs.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

SchedulerLimits scheduler_limits(const Model& model, const EngineOptions& options) {
  const ModelLimits& limits = model.limits();
  const std::int64_t max_rows = options.max_step_rows == 0 ? limits.max_rows : options.max_step_rows;
  if (max_rows < 1 || max_rows > limits.max_rows) {
    throw Error(ErrorCode::invalid_argument, text("EngineOptions: max_step_rows is ", max_rows,
                                                  "; expected 1 to ModelLimits::max_rows, which is ", limits.max_rows));
  }
  // Each sequence of a step may want logits.
  return {.max_rows = max_rows,
          .max_sequences = std::min(limits.max_sequences, limits.max_logit_rows),
          .num_pages = limits.num_pages,
          .page_size = limits.page_size};
}

}  // namespace

struct Engine::Impl {
  Impl(const Communicator& comm, const std::filesystem::path& folder, const EngineOptions& options);

  /// How many tokens the request may generate.
  [[nodiscard]] std::int64_t check(const Request& request) const;
  RequestId submit(Request request);
  void take_calls();
  [[nodiscard]] bool has_work();
  [[nodiscard]] bool anyone_has_work();
  [[nodiscard]] bool step_if_wanted();
  void step(const std::function<void()>& meanwhile);
  void compute(Scheduler::Plan& plan, const std::function<void()>& meanwhile);
  void hand_out(const Scheduler::Plan& plan);
  void end(RequestId id, FinishReason reason, std::int64_t num_reused);
  void fail_all(const std::string& why) noexcept;
  /// body(); what it throws ends all requests.
  template <class Body>
  auto or_fail_all(Body&& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      fail_all(error.what());
      throw;
    }
  }

  Communicator communicator;
  bool ranks_differ;            ///< each has requests of its own
  bool next_is_wanted = false;  ///< ranks agreed upon another step while the last one ran
  Model model;
  Stream stream;
  bool measures;  ///< how long steps spend in exchanges
  std::optional<StepGraphs> graphs;
  std::int64_t num_replayed = 0;
  Scheduler scheduler;
  std::map<std::uint64_t, ActiveRequest> active;
  std::vector<float> logits;
  EngineStats stats;

  std::mutex mutex;  ///< of what follows: calls since the last step
  std::vector<ActiveRequest> submitted;
  std::vector<RequestId> cancelled;
  std::uint64_t last_id = 0;
  std::string failure;  ///< what ended the engine
};

Engine::Impl::Impl(const Communicator& comm, const std::filesystem::path& folder, const EngineOptions& options)
    : communicator(comm),
      ranks_differ(options.model.parallelism == Parallelism::data && comm.size() > 1),
      model(comm, folder, options.model),
      stream(comm.device(), {.num_threads = options.num_threads}),
      measures(options.model.time_exchange),
      scheduler(scheduler_limits(model, options)) {
  if (options.graphs) {
    graphs.emplace(model, stream, ranks_differ);
    comm.barrier();  // nobody may launch while others still allocate
  }
}

std::int64_t Engine::Impl::check(const Request& request) const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, text("request: ", parts...)); };
  if (request.prompt.empty()) {
    refuse(ErrorCode::invalid_argument, "the prompt is empty; expected at least one token");
  }
  for (const Token token : request.prompt) {
    if (token < 0 || token >= model.config().vocab_size) {
      refuse(ErrorCode::invalid_argument, "the prompt has token ", token, "; the vocabulary is 0 to ",
             model.config().vocab_size - 1);
    }
  }
  if (request.max_tokens < 0) {
    refuse(ErrorCode::invalid_argument, "max_tokens is ", request.max_tokens, "; expected 0 (as many as fit) or more");
  }
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t places =
      std::min(model.limits().max_positions, model.limits().num_pages * model.limits().page_size);
  // The last token that is generated needs no place: nothing follows that would look at it.
  const std::int64_t most = places - prompt + 1;
  if (most < 1 || request.max_tokens > most) {
    refuse(ErrorCode::capacity, "a prompt of ", prompt, " tokens and ", std::max<std::int64_t>(request.max_tokens, 1),
           " to generate do not fit ", places,
           " positions of a sequence: shorten one, or raise max_positions and num_pages");
  }
  check_sampling(request.sampling);
  return request.max_tokens == 0 ? most : request.max_tokens;
}

RequestId Engine::Impl::submit(Request request) {
  request.max_tokens = check(request);
  std::unordered_set<Token> stop_tokens(request.stop_tokens.begin(), request.stop_tokens.end());
  if (!request.ignore_end_tokens) {
    stop_tokens.insert(model.config().end_tokens.begin(), model.config().end_tokens.end());
  }
  ActiveRequest checked(std::move(request), std::move(stop_tokens));
  const std::lock_guard lock(mutex);
  if (!failure.empty()) {
    throw Error(ErrorCode::aborted, "the engine has ended: " + failure);
  }
  const RequestId id{++last_id};
  checked.set_id(id);
  submitted.push_back(std::move(checked));
  return id;
}

void Engine::Impl::take_calls() {
  std::vector<ActiveRequest> arrived;
  std::vector<RequestId> gone;
  {
    const std::lock_guard lock(mutex);
    std::swap(arrived, submitted);
    std::swap(gone, cancelled);
  }
  for (ActiveRequest& request : arrived) {
    const auto id = static_cast<std::uint64_t>(request.id());
    scheduler.add(id, request.take_prompt());
    active.emplace(id, std::move(request));
  }
  for (const RequestId id : gone) {
    end(id, FinishReason::cancelled, 0);
  }
}

void Engine::Impl::end(RequestId id, FinishReason reason, std::int64_t num_reused) {
  const auto found = active.find(static_cast<std::uint64_t>(id));
  if (found == active.end()) {
    return;
  }
  scheduler.remove(found->first);
  ActiveRequest request = std::move(found->second);
  active.erase(found);
  request.finish(reason, num_reused);
}

bool Engine::Impl::has_work() {
  const std::lock_guard lock(mutex);
  return !scheduler.empty() || !submitted.empty();
}

bool Engine::Impl::anyone_has_work() {
  const bool mine = has_work();
  if (!ranks_differ) {
    return mine;
  }
  // All must make the same number of steps: experts of this rank may be wanted by others.
  const std::byte word{mine};
  const auto all = communicator.all_gather(std::span(&word, 1));
  return std::any_of(all.begin(), all.end(), [](const auto& part) { return part.front() != std::byte{0}; });
}

bool Engine::Impl::step_if_wanted() {
  if (!next_is_wanted && !anyone_has_work()) {
    return false;
  }
  // Asking takes a round over all ranks: while the device works, it costs nothing. What ends with this step counts
  // still, so that the last step of all is one without rows.
  next_is_wanted = false;
  step([&] { next_is_wanted = ranks_differ && anyone_has_work(); });
  return true;
}

void Engine::Impl::step(const std::function<void()>& meanwhile) {
  take_calls();
  Scheduler::Plan plan = scheduler.plan();
  if (plan.batch.rows.empty() && !ranks_differ) {
    if (meanwhile) {
      meanwhile();
    }
    return;
  }
  compute(plan, meanwhile);
  hand_out(plan);
}

void Engine::Impl::compute(Scheduler::Plan& plan, const std::function<void()>& meanwhile) {
  constexpr std::int64_t kMeasureEvery = 64;
  const auto start = std::chrono::steady_clock::now();
  stats.num_rows += static_cast<std::int64_t>(plan.batch.rows.size());
  bool replayed = false;
  if (graphs) {
    const bool measure = measures && num_replayed % kMeasureEvery == kMeasureEvery - 1;
    replayed = graphs->run(model, plan.batch, !measure, stream);
    num_replayed += replayed || measure ? 1 : 0;
  } else {
    model.load(plan.batch, stream);
    model.run(shape_of(plan.batch), stream);
  }
  if (meanwhile) {
    meanwhile();
  }
  // Copying to memory that is not pinned waits for the device.
  logits.resize(plan.with_logits.size() * static_cast<std::size_t>(model.config().vocab_size));
  model.copy_logits(logits, stream);
  stream.synchronize();
  model.check();
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  ++stats.num_steps;
  stats.step_us += us;
  if (measures && !replayed) {
    const Model::ExchangeTime exchange = model.exchange_time();
    stats.measured_us += us;
    stats.dispatch_us += exchange.dispatch_us;
    stats.combine_us += exchange.combine_us;
  }
}

void Engine::Impl::hand_out(const Scheduler::Plan& plan) {
  std::span<const float> rest = logits;
  const auto vocab = static_cast<std::size_t>(model.config().vocab_size);
  for (Sequence* sequence : plan.with_logits) {
    ActiveRequest& request = active.at(sequence->id);
    if (const auto reason = request.advance(rest.first(vocab), *sequence)) {
      end(request.id(), *reason, static_cast<std::int64_t>(sequence->num_reused));
    }
    rest = rest.subspan(vocab);
  }
}

void Engine::Impl::fail_all(const std::string& why) noexcept {
  std::vector<ActiveRequest> never_started;
  {
    const std::lock_guard lock(mutex);
    failure = why;
    std::swap(never_started, submitted);
  }
  for (auto& [id, request] : active) {
    request.fail(why);
  }
  active.clear();
  for (ActiveRequest& request : never_started) {
    request.fail(why);
  }
}

Engine::Engine(const Communicator& communicator, const std::filesystem::path& folder, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(communicator, folder, options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

RequestId Engine::submit(Request request) { return impl_->submit(std::move(request)); }

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.push_back(id);
}

void Engine::check(const Request& request) const { (void)impl_->check(request); }

bool Engine::step() {
  return impl_->or_fail_all([&] { return impl_->step_if_wanted(); });
}

void Engine::step_with_others(const std::function<void()>& meanwhile) {
  impl_->or_fail_all([&] { impl_->step(meanwhile); });
}

bool Engine::has_work() const { return impl_->has_work(); }

EngineLoad Engine::load() const {
  const std::lock_guard lock(impl_->mutex);
  return {.num_running = impl_->scheduler.num_running(),
          .num_waiting = impl_->scheduler.num_waiting() + static_cast<std::int64_t>(impl_->submitted.size()),
          .num_free_pages = impl_->scheduler.cache().num_free()};
}

const Model& Engine::model() const noexcept { return impl_->model; }

EngineStats Engine::stats() const noexcept {
  EngineStats stats = impl_->stats;
  stats.num_preempted = impl_->scheduler.num_preempted();
  return stats;
}

std::int64_t Engine::num_free_pages() const noexcept { return impl_->scheduler.cache().num_free(); }

}  // namespace moelink::engine
