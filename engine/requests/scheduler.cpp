#include "engine/requests/scheduler.hpp"

#include <algorithm>

namespace moelink::engine {
namespace {

std::int64_t num_missing(const Sequence& sequence) {
  return static_cast<std::int64_t>(sequence.tokens.size() - sequence.num_computed);
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits), cache_(limits.num_pages, limits.page_size) {}

Sequence& Scheduler::add(std::uint64_t id, std::vector<Token> tokens) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->tokens = std::move(tokens);
  waiting_.push_back(std::move(sequence));
  return *waiting_.back();
}

void Scheduler::remove(std::uint64_t id) {
  for (Sequences* sequences : {&running_, &waiting_}) {
    const auto found = std::find_if(sequences->begin(), sequences->end(), [&](const auto& s) { return s->id == id; });
    if (found != sequences->end()) {
      publish_full_pages(**found);  // for those who ask the same later
      release(**found);
      sequences->erase(found);
      return;
    }
  }
}

Scheduler::Plan Scheduler::plan() {
  Plan plan;
  for (const auto& sequence : running_) {
    sequence->has_rows = false;
    publish_full_pages(*sequence);  // now that they are written: no step may read another's page that it writes
  }
  const std::int64_t preempted_before = num_preempted_;
  bool enough_pages = true;
  for (const bool generates : {true, false}) {
    // A sequence that is reached may send younger ones away, which are behind it: iterators of a list survive that.
    for (auto at = running_.begin(); at != running_.end(); ++at) {
      Sequence& sequence = **at;
      if (!sequence.has_rows && (num_missing(sequence) == 1) == generates) {
        enough_pages = add_rows(plan, sequence, rows_left(plan)) && enough_pages;
      }
    }
  }
  enough_pages = enough_pages && num_preempted_ == preempted_before;
  while (enough_pages && !waiting_.empty() && rows_left(plan) > 0 &&
         static_cast<std::int64_t>(running_.size()) < limits_.max_sequences) {
    enough_pages = admit(plan);
  }
  return plan;
}

std::int64_t Scheduler::rows_left(const Plan& plan) const {
  return limits_.max_rows - static_cast<std::int64_t>(plan.batch.rows.size());
}

bool Scheduler::add_rows(Plan& plan, Sequence& sequence, std::int64_t max_rows) {
  const std::int64_t wanted = std::min(max_rows, num_missing(sequence));
  const auto computed = static_cast<std::int64_t>(sequence.num_computed);
  bool enough_pages = true;
  const auto num_places = [&] { return static_cast<std::int64_t>(sequence.pages.size()) * limits_.page_size; };
  while (enough_pages && num_places() < computed + wanted) {
    const std::optional<std::int32_t> page = take_page(sequence);
    enough_pages = page.has_value();
    if (page) {
      sequence.pages.push_back(*page);
    }
  }
  const std::int64_t num_rows = std::min(wanted, num_places() - computed);
  if (num_rows <= 0) {
    return enough_pages;
  }
  Batch& batch = plan.batch;
  for (std::int64_t i = 0; i < num_rows; ++i, ++sequence.num_computed) {
    batch.rows.push_back({.token = sequence.tokens[sequence.num_computed],
                          .position = static_cast<std::int32_t>(sequence.num_computed),
                          .sequence = static_cast<std::int32_t>(batch.pages.size())});
  }
  batch.pages.push_back(sequence.pages);
  if (num_missing(sequence) == 0) {
    batch.logit_rows.push_back(static_cast<std::int32_t>(batch.rows.size()) - 1);
    plan.with_logits.push_back(&sequence);
  }
  sequence.has_rows = true;
  return enough_pages;
}

void Scheduler::publish_full_pages(Sequence& sequence) {
  const auto size = static_cast<std::size_t>(limits_.page_size);
  for (; (sequence.num_published + 1) * size <= sequence.num_computed; ++sequence.num_published) {
    const std::span<const Token> tokens = std::span(sequence.tokens).subspan(sequence.num_published * size, size);
    sequence.content = cache_.publish(sequence.pages[sequence.num_published], sequence.content, tokens);
  }
}

bool Scheduler::admit(Plan& plan) {
  Sequence& sequence = *waiting_.front();
  // The last token is always computed: its logits are wanted.
  PageCache::Prefix prefix = cache_.find(std::span(sequence.tokens).first(sequence.tokens.size() - 1));
  sequence.num_computed = prefix.pages.size() * static_cast<std::size_t>(limits_.page_size);
  sequence.num_published = prefix.pages.size();
  sequence.content = prefix.content;
  sequence.pages = std::move(prefix.pages);
  // Only where all its tokens have a place: to begin and be sent away again would be work for nothing.
  const auto num_pages = static_cast<std::int64_t>(sequence.tokens.size() - 1) / limits_.page_size + 1;
  if (num_pages - static_cast<std::int64_t>(sequence.pages.size()) > cache_.num_free()) {
    release(sequence);
    return false;
  }
  if (!sequence.was_admitted) {
    sequence.was_admitted = true;
    sequence.num_reused = sequence.num_computed;
  }
  add_rows(plan, sequence, rows_left(plan));
  const auto younger =
      std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s->id > sequence.id; });
  running_.splice(younger, waiting_, waiting_.begin());
  return true;
}

std::optional<std::int32_t> Scheduler::take_page(const Sequence& sequence) {
  while (true) {
    if (const std::optional<std::int32_t> page = cache_.allocate()) {
      return page;
    }
    if (!preempt_younger_than(sequence)) {
      return {};
    }
  }
}

bool Scheduler::preempt_younger_than(const Sequence& sequence) {
  for (auto at = running_.end(); at != running_.begin();) {
    --at;
    if ((*at)->id <= sequence.id) {
      return false;
    }
    if (!(*at)->has_rows) {
      release(**at);
      const std::uint64_t id = (*at)->id;
      const auto younger = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& s) { return s->id > id; });
      waiting_.splice(younger, running_, at);
      ++num_preempted_;
      return true;
    }
  }
  return false;
}

void Scheduler::release(Sequence& sequence) {
  for (auto page = sequence.pages.rbegin(); page != sequence.pages.rend(); ++page) {
    cache_.release(*page);
  }
  sequence.pages.clear();
  sequence.num_computed = 0;
  sequence.num_published = 0;
  sequence.content = PageCache::kStart;
  sequence.has_rows = false;
}

}  // namespace moelink::engine
