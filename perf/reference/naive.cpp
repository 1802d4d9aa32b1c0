#include "perf/reference/naive.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "perf/reference/element.hpp"

namespace moelink::perf {
namespace {

class NaiveLoops {
 public:
  NaiveLoops(const MoeCase& moe, Team& team)
      : moe_(moe),
        routing_(moe.routing()),
        tokens_(filled(moe.own_tokens(), team)),
        rows_(num_entries() * static_cast<std::size_t>(moe.own_tokens().row_bytes)),
        expert_output_(filled({.type = moe.expert_output,
                               .rows = static_cast<std::int64_t>(num_entries()),
                               .row_bytes = output_row_bytes(),
                               .seed = moe.own_tokens().seed + 1},
                              team)),
        output_(static_cast<std::size_t>(moe.own_tokens().rows * output_row_bytes())),
        next_row_(static_cast<std::size_t>(routing_.num_experts)),
        row_of_entry_(num_entries()) {}

  void dispatch() {
    place_experts();
    const std::int64_t row_bytes = moe_.own_tokens().row_bytes;
    for (std::size_t entry = 0; entry < row_of_entry_.size(); ++entry) {
      const std::int64_t row = next_row_[static_cast<std::size_t>(routing_.expert_ids[entry])]++;
      row_of_entry_[entry] = row;
      const auto token = static_cast<std::int64_t>(entry) / routing_.top_k;
      std::memcpy(rows_.data() + row * row_bytes, tokens_.data() + token * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
  }

  template <class Number>
  void combine() {
    const auto* in = reinterpret_cast<const typename Number::Bits*>(expert_output_.data());
    auto* out = reinterpret_cast<typename Number::Bits*>(output_.data());
    for (std::int64_t token = 0; token < routing_.num_tokens; ++token) {
      for (std::int64_t i = 0; i < moe_.hidden; ++i) {
        float sum = 0;
        for (std::int64_t entry = token * routing_.top_k; entry < (token + 1) * routing_.top_k; ++entry) {
          const std::int64_t row = row_of_entry_[static_cast<std::size_t>(entry)];
          sum += routing_.weights[static_cast<std::size_t>(entry)] * Number::load(in[row * moe_.hidden + i]);
        }
        out[token * moe_.hidden + i] = Number::store(sum);
      }
    }
  }

 private:
  static std::vector<std::byte> filled(const RandomMatrix& matrix, Team& team) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.rows * matrix.row_bytes));
    team.for_ranges(matrix.rows, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        matrix.make_row(row, bytes.data() + row * matrix.row_bytes);
      }
    });
    return bytes;
  }

  std::size_t num_entries() const { return routing_.expert_ids.size(); }
  std::int64_t output_row_bytes() const { return moe_.hidden * static_cast<std::int64_t>(size_of(moe_.expert_output)); }

  void place_experts() {
    std::fill(next_row_.begin(), next_row_.end(), 0);
    for (const std::int64_t id : routing_.expert_ids) {
      ++next_row_[static_cast<std::size_t>(id)];
    }
    std::int64_t first = 0;
    for (std::int64_t& row : next_row_) {
      const std::int64_t count = row;
      row = first;
      first += count;
    }
  }

  const MoeCase& moe_;
  const Routing& routing_;
  std::vector<std::byte> tokens_, rows_, expert_output_, output_;
  std::vector<std::int64_t> next_row_, row_of_entry_;
};

template <class Work>
double microseconds(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

NaiveTimes time_naive(const MoeCase& moe, int samples, Team& team) {
  NaiveLoops loops(moe, team);
  NaiveTimes times;
  for (int sample = 0; sample < samples; ++sample) {
    times.dispatch_us.push_back(microseconds([&] { loops.dispatch(); }));
    times.combine_us.push_back(microseconds(
        [&] { visit_number(moe.expert_output, [&](auto number) { loops.template combine<decltype(number)>(); }); }));
  }
  return times;
}

}  // namespace moelink::perf
