#include "engine/model/step_inputs.hpp"

#include <algorithm>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

[[noreturn]] void refuse(const std::string& complaint) {
  throw Error(ErrorCode::invalid_argument, "batch: " + complaint);
}

void check_count(const char* what, std::size_t count, std::int64_t limit) {
  if (static_cast<std::int64_t>(count) > limit) {
    refuse(text("it has ", count, ' ', what, "; ModelLimits allow ", limit));
  }
}

}  // namespace

StepInputs::StepInputs(Device device, const ModelConfig& config, const ModelLimits& limits)
    : vocab_size_(config.vocab_size),
      limits_(limits),
      page_stride_((limits.max_positions + limits.page_size - 1) / limits.page_size),
      buffer_(device, static_cast<std::size_t>(kRowArrays * limits.max_rows + limits.max_sequences * page_stride_) *
                          sizeof(std::int32_t)),
      staging_(kLoadsUnderWay, std::vector<std::int32_t>(buffer_.size_bytes() / sizeof(std::int32_t))) {}

StepRows StepInputs::rows(std::int64_t num_rows) const noexcept {
  return {.positions = row(1),
          .sequences = row(2),
          .page_table = row(kRowArrays),
          .page_stride = page_stride_,
          .num_rows = num_rows};
}

void StepInputs::check_row(const Batch& batch, std::size_t index) const {
  const BatchRow& row = batch.rows[index];
  const auto at = [&] { return text("row ", index, " has "); };
  if (row.token < 0 || row.token >= vocab_size_) {
    refuse(text(at(), "token ", row.token, "; the vocabulary is 0 to ", vocab_size_ - 1));
  }
  if (row.sequence < -1 || row.sequence >= static_cast<std::int64_t>(batch.pages.size())) {
    refuse(text(at(), "sequence ", row.sequence, " of ", batch.pages.size()));
  }
  if (row.position < 0 || row.position >= limits_.max_positions) {
    refuse(text(at(), "position ", row.position, "; sequences have at most ", limits_.max_positions));
  }
  if (row.sequence >= 0) {
    const auto pages = static_cast<std::int64_t>(batch.pages[static_cast<std::size_t>(row.sequence)].size());
    if (row.position >= pages * limits_.page_size) {
      refuse(text(at(), "position ", row.position, ", beyond the ", pages, " pages of its sequence"));
    }
  }
}

void StepInputs::check(const Batch& batch) const {
  check_count("rows", batch.rows.size(), limits_.max_rows);
  check_count("rows with logits", batch.logit_rows.size(), limits_.max_logit_rows);
  check_count("sequences", batch.pages.size(), limits_.max_sequences);
  for (const auto& pages : batch.pages) {
    check_count("pages of one sequence", pages.size(), page_stride_);
    for (const std::int32_t page : pages) {
      if (page < 0 || page >= limits_.num_pages) {
        refuse(text("page ", page, " is outside of the cache, which has ", limits_.num_pages));
      }
    }
  }
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    check_row(batch, i);
  }
  for (const std::int32_t row : batch.logit_rows) {
    if (row < 0 || row >= static_cast<std::int64_t>(batch.rows.size())) {
      refuse(text("logits of row ", row, " are wanted; it has ", batch.rows.size(), " rows"));
    }
  }
}

void StepInputs::load(const Batch& batch, StreamView stream) {
  check(batch);
  std::vector<std::int32_t>& staging = staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  const auto at = [&](std::int64_t array) { return staging.begin() + array * limits_.max_rows; };
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    const auto row = static_cast<std::ptrdiff_t>(i);
    at(0)[row] = batch.rows[i].token;
    at(1)[row] = batch.rows[i].position;
    at(2)[row] = batch.rows[i].sequence;
  }
  std::copy(batch.logit_rows.begin(), batch.logit_rows.end(), at(3));
  auto table = at(kRowArrays);
  for (const auto& pages : batch.pages) {
    std::copy(pages.begin(), pages.end(), table);
    table += page_stride_;
  }
  const auto num_words = static_cast<std::size_t>(table - staging.begin());
  copy_bytes(buffer_.data(), staging.data(), num_words * sizeof(std::int32_t), stream);
}

}  // namespace moelink::engine
