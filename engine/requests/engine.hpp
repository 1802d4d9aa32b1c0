// The engine on one rank: requests in, tokens out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "engine/model/model.hpp"
#include "engine/requests/request.hpp"
#include "moelink/communicator.hpp"

namespace moelink::engine {

struct EngineOptions {
  ModelOptions model = {};
  /// Rows of one step, at most ModelLimits::max_rows, which 0 stands for: longer prompts go in chunks, so that others
  /// need not wait long for their next token.
  std::int64_t max_step_rows = 0;
  int num_threads = 0;  ///< host: threads of the stream; 0: MOELINK_HOST_THREADS, else the number of cores
  /// GPU: steps of up to ModelLimits::max_decode_rows rows are captured at construction, and replayed.
  bool graphs = true;
};

/// What an engine has to do at a moment.
struct EngineLoad {
  std::int64_t num_running = 0;  ///< requests that have pages
  std::int64_t num_waiting = 0;  ///< requests that have none, or none any more
  std::int64_t num_free_pages = 0;
};

struct EngineStats {
  std::int64_t num_steps = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_preempted = 0;  ///< times that a request lost its pages to an older one, and was computed again
  double step_us = 0;              ///< all steps together, until their logits were here
  /// Of these, steps that were measured (with ModelOptions::time_exchange): on a GPU the captured ones are not, but
  /// every 64th of them is launched call by call instead, and is.
  double measured_us = 0;
  double dispatch_us = 0;  ///< of the steps that were measured
  double combine_us = 0;
};

/// Continuous batching over a model: requests join and leave between steps, prompts go in chunks beside others that
/// generate, pages that hold the start of a prompt already are shared. A request's tokens do not depend on others: bit
/// for bit on the host, where rows do not (Model).
///
/// submit(), check() and cancel() are for any thread, all else for one. With Parallelism::tensor every rank must make
/// the same calls in the same order, cancel() also between the same steps. With Parallelism::data each rank has
/// requests of its own; a rank without any still takes part in the steps of the others, and all leave step() with the
/// same answer.
class Engine {
 public:
  /// Collective.
  Engine(const Communicator& communicator, const std::filesystem::path& folder, const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  /// Takes part from the next step on. Throws invalid_argument for an empty prompt, tokens outside the vocabulary,
  /// max_tokens below 0, and sampling values out of range; ErrorCode::capacity for a request that, up to its last
  /// token, is longer than the cache or than sequences of the model. Nobody else is harmed by a request that is
  /// refused.
  RequestId submit(Request request);

  /// Throws as submit() would. From any thread.
  void check(const Request& request) const;

  /// Ends a request before the next step; nothing happens if it has ended.
  void cancel(RequestId id);

  /// One step, with all callbacks that are due; false if no rank had anything to do (Parallelism::tensor: this rank).
  /// What it throws is a failure of the model or of another rank: all requests have then ended as failed, and only
  /// destruction is left.
  bool step();

  /// step() for ranks that tell each other themselves whether any of them has work: every rank calls it then, also one
  /// that has none. `meanwhile` is called once all work of the step is enqueued, before the device is waited for; it
  /// may submit and cancel. Fails as step() does.
  void step_with_others(const std::function<void()>& meanwhile = {});
  /// Whether this rank has requests that have not ended. While a step is under way (`meanwhile`), one that the step
  /// ends still counts.
  [[nodiscard]] bool has_work() const;

  [[nodiscard]] const Model& model() const noexcept;
  [[nodiscard]] EngineStats stats() const noexcept;
  [[nodiscard]] EngineLoad load() const;
  /// Pages of the cache that no request has.
  [[nodiscard]] std::int64_t num_free_pages() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink::engine
