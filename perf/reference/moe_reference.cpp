#include "perf/reference/moe_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "perf/reference/element.hpp"
#include "perf/reference/expert.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kRowsAtOnce = 8;  // per thread: a few hundred kilobytes

/// One row of numbers, made, weighted and summed in storage of its own.
template <class Element>
struct Row {
  explicit Row(std::int64_t columns) : values(static_cast<std::size_t>(columns)) {}
  std::byte* bytes() { return reinterpret_cast<std::byte*>(values.data()); }
  std::vector<typename Element::Bits> values;
};

/// Calls `visit` with the type that experts read: of quantised rows the values that they stand for.
template <class Visitor>
decltype(auto) visit_expert_input(const MoeCase& moe, Visitor&& visit) {
  return moe.is_quantized() ? visit(Float32{}) : visit_element(moe.own_tokens().type, visit);
}

/// A token's elements before they are quantised.
void make_floats(const MoeCase& moe, int source, std::int64_t token, Row<Float32>& to) {
  const RandomMatrix& tokens = moe.tokens[static_cast<std::size_t>(source)];
  visit_number(tokens.type, [&](auto element) {
    using Element = decltype(element);
    thread_local Row<Element> row(0);
    row.values.resize(static_cast<std::size_t>(moe.hidden));
    tokens.make_row(token, row.bytes());
    to.values.resize(row.values.size());
    std::ranges::transform(row.values, to.values.begin(),
                           [](auto bits) { return Float32::store(Element::load(bits)); });
  });
}

struct QuantizedRow {
  std::vector<std::byte> elements, scales;
};

/// Valid until this thread's next call.
const QuantizedRow& quantized_row(const MoeCase& moe, int source, std::int64_t token) {
  thread_local Row<Float32> values(0);
  thread_local std::vector<float> floats;
  thread_local QuantizedRow row;
  make_floats(moe, source, token, values);
  floats.assign(values.values.size(), 0);
  std::ranges::transform(values.values, floats.begin(), Float32::load);
  row.elements.resize(static_cast<std::size_t>(moe.row_bytes()));
  row.scales.resize(static_cast<std::size_t>(moe.scale_bytes()));
  moe.format.quantize(floats, row.elements.data(), row.scales.data());
  return row;
}

/// What experts read of a quantised row.
void dequantize(const MoeCase& moe, const std::byte* elements, const std::byte* scales, Row<Float32>& to) {
  thread_local std::vector<float> floats;
  floats.resize(static_cast<std::size_t>(moe.hidden));
  moe.format.dequantize(elements, scales, floats);
  to.values.resize(floats.size());
  std::ranges::transform(floats, to.values.begin(), Float32::store);
}

/// Rows that are multiplied on the way in are rounded to their own type.
template <class Element>
void scale_row(Row<Element>& row, float weight) {
  if constexpr (!std::is_same_v<Element, OpaqueByte>) {
    for (auto& value : row.values) {
      value = Element::store(Element::load(value) * weight);
    }
  }
}

/// The row that expert `expert` gives for `in`, as floats that the output type can hold.
template <class In, class Out>
void expert_row(std::int64_t expert, const typename In::Bits* in, std::int64_t columns, typename Out::Bits* out) {
  const Expert function(expert);
  for (std::int64_t i = 0; i < columns; ++i) {
    out[i] = Out::store(function(In::load(in[i])));
  }
}

template <class Bits>
void compare_row(const std::vector<Bits>& expected, const std::byte* seen_bytes, const char* what, std::int64_t row,
                 Mismatches& mismatches) {
  if (std::memcmp(expected.data(), seen_bytes, expected.size() * sizeof(Bits)) == 0) return;
  std::int64_t wrong = 0;
  std::size_t first = expected.size();
  Bits first_seen{};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    Bits seen{};
    std::memcpy(&seen, seen_bytes + i * sizeof(Bits), sizeof(Bits));
    if (seen == expected[i]) continue;
    if (wrong++ == 0) {
      first = i;
      first_seen = seen;
    }
  }
  mismatches.add(wrong, [&] {
    return fmt::format("{} {} column {}: 0x{:0{}x} instead of 0x{:0{}x}", what, row, first, first_seen,
                       2 * sizeof(Bits), expected[first], 2 * sizeof(Bits));
  });
}

/// Calls `check(row, {source, entry})` for every row of the range that is not a pad.
template <class Check>
void for_rows(const MoeCase& moe, std::int64_t first_row, std::int64_t count, Team& team, Check&& check) {
  team.for_ranges(count, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t entry = moe.plan->entry_of_row[static_cast<std::size_t>(first_row + i)];
      if (entry >= 0) check(i, moe.sources->locate(entry));
    }
  });
}

}  // namespace

void MoeCase::make_row(int source, std::int64_t token, std::byte* to) const {
  if (is_quantized()) {
    std::ranges::copy(quantized_row(*this, source, token).elements, to);
  } else {
    tokens[static_cast<std::size_t>(source)].make_row(token, to);
  }
}

void MoeCase::make_scales(int source, std::int64_t token, std::byte* to) const {
  if (is_quantized()) {
    std::ranges::copy(quantized_row(*this, source, token).scales, to);
  } else {
    scales[static_cast<std::size_t>(source)].make_row(token, to);
  }
}

void check_rows(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* rows, Team& team,
                Mismatches& mismatches) {
  visit_element(moe.row_type(), [&](auto element) {
    using Element = decltype(element);
    const std::int64_t row_bytes = moe.row_bytes();
    const auto columns = row_bytes / static_cast<std::int64_t>(sizeof(typename Element::Bits));
    for_rows(moe, first_row, count, team, [&](std::int64_t i, Sources::Entry from) {
      thread_local Row<Element> expected(0);
      expected.values.resize(static_cast<std::size_t>(columns));
      moe.make_row(from.source, from.entry / moe.sources->top_k(), expected.bytes());
      if (moe.weight_mode == WeightMode::on_input) {
        scale_row(expected, (*moe.sources)[from.source].weights[static_cast<std::size_t>(from.entry)]);
      }
      compare_row(expected.values, rows + i * row_bytes, "dispatched row", first_row + i, mismatches);
    });
  });
}

void check_scales(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* scales, Team& team,
                  Mismatches& mismatches) {
  const std::int64_t row_bytes = moe.scale_bytes();
  for_rows(moe, first_row, count, team, [&](std::int64_t i, Sources::Entry from) {
    thread_local Row<OpaqueByte> expected(0);
    expected.values.resize(static_cast<std::size_t>(row_bytes));
    moe.make_scales(from.source, from.entry / moe.sources->top_k(), expected.bytes());
    compare_row(expected.values, scales + i * row_bytes, "scales of row", first_row + i, mismatches);
  });
}

void apply_experts(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* rows,
                   const std::byte* scales, std::byte* expert_output, Team& team) {
  visit_expert_input(moe, [&](auto in) {
    visit_number(moe.expert_output, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      const auto out_bytes = moe.hidden * static_cast<std::int64_t>(sizeof(typename Out::Bits));
      const std::int64_t first_expert = moe.placement->first_expert(moe.plan->rank);
      const std::int64_t row_bytes = moe.row_bytes();
      for_rows(moe, first_row, count, team, [&](std::int64_t i, Sources::Entry) {
        const auto* row = reinterpret_cast<const typename In::Bits*>(rows + i * row_bytes);
        if constexpr (std::is_same_v<In, Float32>) {
          thread_local Row<Float32> dequantized(0);
          if (moe.is_quantized()) {
            dequantize(moe, rows + i * row_bytes, scales + i * moe.scale_bytes(), dequantized);
            row = dequantized.values.data();
          }
        }
        expert_row<In, Out>(first_expert + moe.plan->expert_of_row[static_cast<std::size_t>(first_row + i)], row,
                            moe.hidden, reinterpret_cast<typename Out::Bits*>(expert_output + i * out_bytes));
      });
    });
  });
}

namespace {

/// One token's sum, in the documented order: from zero, part by part, ranks ascending; a part from zero, k ascending,
/// product and sum each rounded.
template <class In, class Mid, class Out>
class TokenSum {
 public:
  explicit TokenSum(const MoeCase& moe)
      : moe_(moe),
        routing_(moe.routing()),
        token_(moe.hidden),
        row_(moe.hidden),
        expert_output_(moe.hidden),
        part_(static_cast<std::size_t>(moe.hidden)),
        sum_(static_cast<std::size_t>(moe.hidden)),
        magnitude_(static_cast<std::size_t>(moe.order_is_free ? moe.hidden : 0)),
        output_(moe.hidden) {}

  const std::vector<typename Out::Bits>& operator()(std::int64_t token) {
    make_token(token);
    return sum(token);
  }

  /// The same as if tokens had not been quantised.
  const std::vector<typename Out::Bits>& unquantized(std::int64_t token) {
    if constexpr (std::is_same_v<In, Float32>) make_floats(moe_, moe_.source(), token, token_);
    return sum(token);
  }

  /// The token's row as it may be: of `seen`, what is as near as another order of sums gives, else what operator()
  /// said.
  std::vector<typename Out::Bits> nearest(const std::byte* seen) const {
    std::vector<typename Out::Bits> row = output_.values;
    constexpr float kUnit = sizeof(typename Out::Bits) == 4 ? 0x1p-23F
                            : std::is_same_v<Out, BFloat16> ? 0x1p-8F
                                                            : 0x1p-11F;
    for (std::size_t i = 0; i < row.size(); ++i) {
      typename Out::Bits bits{};
      std::memcpy(&bits, seen + i * sizeof(bits), sizeof(bits));
      const float slack = kUnit * static_cast<float>(moe_.placement->num_ranks) * magnitude_[i];
      if (std::abs(Out::load(bits) - sum_[i]) <= slack) row[i] = bits;
    }
    return row;
  }

 private:
  void make_token(std::int64_t token) {
    if constexpr (std::is_same_v<In, Float32>) {
      if (moe_.is_quantized()) {
        const QuantizedRow& row = quantized_row(moe_, moe_.source(), token);
        return dequantize(moe_, row.elements.data(), row.scales.data(), token_);
      }
    }
    moe_.own_tokens().make_row(token, token_.bytes());
  }

  const std::vector<typename Out::Bits>& sum(std::int64_t token) {
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    std::fill(magnitude_.begin(), magnitude_.end(), 0.0F);
    for (int rank = first_rank(token); rank < moe_.placement->num_ranks; rank = next_rank(token, rank)) {
      add_part(token, rank);
    }
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      output_.values[i] = Out::store(sum_[i]);
    }
    return output_.values;
  }

  [[nodiscard]] int first_rank(std::int64_t token) const { return next_rank(token, -1); }

  /// The lowest rank above `rank` that has a row of the token; a part without rows is zero and changes nothing.
  [[nodiscard]] int next_rank(std::int64_t token, int rank) const {
    int next = moe_.placement->num_ranks;
    for (std::int64_t entry = token * routing_.top_k; entry < (token + 1) * routing_.top_k; ++entry) {
      const std::int32_t expert = moe_.plan->expert_of_entry[static_cast<std::size_t>(entry)];
      if (expert < 0) continue;
      const int owner = moe_.placement->owner_of(expert);
      if (owner > rank) next = std::min(next, owner);
    }
    return next;
  }

  void add_part(std::int64_t token, int rank) {
    std::fill(part_.begin(), part_.end(), 0.0F);
    for (std::int64_t entry = token * routing_.top_k; entry < (token + 1) * routing_.top_k; ++entry) {
      const std::int32_t expert = moe_.plan->expert_of_entry[static_cast<std::size_t>(entry)];
      if (expert >= 0 && moe_.placement->owner_of(expert) == rank) {
        add_row(expert, routing_.weights[static_cast<std::size_t>(entry)]);
      }
    }
    for (std::size_t i = 0; i < magnitude_.size(); ++i) magnitude_[i] += std::abs(part_[i]);
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      sum_[i] += moe_.rounded_parts ? Mid::load(Mid::store(part_[i])) : part_[i];
    }
  }

  void add_row(std::int64_t expert, float weight) {
    const auto* in = token_.values.data();
    if (moe_.weight_mode == WeightMode::on_input) {
      row_.values = token_.values;
      scale_row(row_, weight);
      in = row_.values.data();
    }
    expert_row<In, Mid>(expert, in, moe_.hidden, expert_output_.values.data());
    const typename Mid::Bits* y = expert_output_.values.data();
    float* part = part_.data();
    const std::int64_t hidden = moe_.hidden;
    if (moe_.weight_mode == WeightMode::on_combine) {
      for (std::int64_t i = 0; i < hidden; ++i) part[i] += weight * Mid::load(y[i]);
    } else {
      for (std::int64_t i = 0; i < hidden; ++i) part[i] += Mid::load(y[i]);
    }
  }

  const MoeCase& moe_;
  const Routing& routing_;
  Row<In> token_;
  Row<In> row_;
  Row<Mid> expert_output_;
  std::vector<float> part_;
  std::vector<float> sum_;
  std::vector<float> magnitude_;  // of the parts; where the order is free
  Row<Out> output_;
};

template <class Out>
void add_error(const std::vector<typename Out::Bits>& right, const std::byte* seen, RelativeError& error) {
  double differences = 0;
  double values = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    typename Out::Bits bits{};
    std::memcpy(&bits, seen + i * sizeof(bits), sizeof(bits));
    const double value = Out::load(right[i]);
    const double difference = Out::load(bits) - value;
    differences += difference * difference;
    values += value * value;
  }
  error.add(differences, values);
}

}  // namespace

void check_output(const MoeCase& moe, std::int64_t first_token, std::int64_t count, const std::byte* output, Team& team,
                  Mismatches& mismatches, RelativeError* error) {
  visit_expert_input(moe, [&](auto in) {
    visit_number(moe.expert_output, [&](auto mid) {
      visit_number(moe.output, [&](auto out) {
        using Out = decltype(out);
        const auto out_bytes = moe.hidden * static_cast<std::int64_t>(sizeof(typename Out::Bits));
        team.for_ranges(count, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
          TokenSum<decltype(in), decltype(mid), Out> sum(moe);
          for (std::int64_t i = begin; i < end; ++i) {
            const std::byte* seen = output + i * out_bytes;
            const auto& expected = sum(first_token + i);
            compare_row(moe.order_is_free ? sum.nearest(seen) : expected, seen, "output of token", first_token + i,
                        mismatches);
            if (error != nullptr) add_error<Out>(sum.unquantized(first_token + i), seen, *error);
          }
        });
      });
    });
  });
}

}  // namespace moelink::perf
