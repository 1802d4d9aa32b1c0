// Which rows the next step computes.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/batch.hpp"
#include "engine/requests/page_cache.hpp"

namespace moelink::engine {

/// The tokens of one request as they are known so far, and where their keys and values are.
struct Sequence {
  std::uint64_t id = 0;  ///< the older, the smaller
  std::vector<Token> tokens;
  std::size_t num_computed = 0;  ///< tokens whose keys and values are in pages
  std::vector<std::int32_t> pages;
  std::size_t num_published = 0;                   ///< pages that others can find
  PageCache::Content content = PageCache::kStart;  ///< of the last published page
  std::size_t num_reused = 0;                      ///< tokens that were not computed when it was first admitted
  bool was_admitted = false;
  bool has_rows = false;  ///< in the step that is planned
};

struct SchedulerLimits {
  std::int64_t max_rows = 0;       ///< of one step: prompts beyond go in chunks
  std::int64_t max_sequences = 0;  ///< that have pages at the same time
  std::int64_t num_pages = 0;
  std::int64_t page_size = 0;
};

/// Continuous batching: every step takes one row of each sequence that generates, then fills up with chunks of prompts,
/// oldest first. Pages are taken as sequences grow. Where none is left, an older sequence takes those of the youngest,
/// which waits and is computed again later; so the oldest always goes on, and every sequence ends that fits the cache
/// alone. A pure function of its calls: ranks that make the same calls plan the same steps.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  /// The sequence must fit the cache, up to its end.
  Sequence& add(std::uint64_t id, std::vector<Token> tokens);
  /// Gives its pages back, and forgets it.
  void remove(std::uint64_t id);
  [[nodiscard]] bool empty() const noexcept { return running_.empty() && waiting_.empty(); }

  struct Plan {
    Batch batch;
    std::vector<Sequence*> with_logits;  ///< in the order of the logits: their next token can be picked
  };
  /// The next step, whose rows count as computed: it must be run. Empty exactly if there are no sequences.
  [[nodiscard]] Plan plan();

  [[nodiscard]] const PageCache& cache() const noexcept { return cache_; }
  [[nodiscard]] std::int64_t num_running() const noexcept { return static_cast<std::int64_t>(running_.size()); }
  [[nodiscard]] std::int64_t num_waiting() const noexcept { return static_cast<std::int64_t>(waiting_.size()); }
  /// How often a sequence lost its pages to an older one.
  [[nodiscard]] std::int64_t num_preempted() const noexcept { return num_preempted_; }

 private:
  using Sequences = std::list<std::unique_ptr<Sequence>>;

  /// Adds up to `max_rows` rows, as far as pages can be had; false if pages were missing.
  bool add_rows(Plan& plan, Sequence& sequence, std::int64_t max_rows);
  /// The oldest that waits; false if pages were missing.
  bool admit(Plan& plan);
  [[nodiscard]] std::optional<std::int32_t> take_page(const Sequence& sequence);
  bool preempt_younger_than(const Sequence& sequence);
  void release(Sequence& sequence);
  void publish_full_pages(Sequence& sequence);
  [[nodiscard]] std::int64_t rows_left(const Plan& plan) const;

  SchedulerLimits limits_;
  PageCache cache_;
  Sequences running_;  ///< oldest first, as are those that wait
  Sequences waiting_;
  std::int64_t num_preempted_ = 0;
};

}  // namespace moelink::engine
