// The check of perf tools, checked: what is right passes, and each kind of mistake is seen.
#include "perf/reference/moe_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "perf/reference/element.hpp"
#include "perf/reference/expert.hpp"
#include "perf/reference/row_plan.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kHidden = 24;

/// Dispatched rows and outputs worked out here, entry by entry, for the check to agree with.
class MoeReference : public testing::TestWithParam<WeightMode> {
 protected:
  MoeReference() {
    for (std::int64_t row = 0; row < plan_.num_rows(); ++row) {
      const std::int64_t entry = plan_.entry_of_row[static_cast<std::size_t>(row)];
      std::uint16_t* to = rows_.data() + row * kHidden;
      if (entry < 0) continue;
      moe_.own_tokens().make_row(entry / routing_.top_k, reinterpret_cast<std::byte*>(to));
      for (std::int64_t i = 0; GetParam() == WeightMode::on_input && i < kHidden; ++i) {
        to[i] = BFloat16::store(BFloat16::load(to[i]) * routing_.weights[static_cast<std::size_t>(entry)]);
      }
    }
    sum_outputs();
  }

  void sum_outputs() {
    for (std::int64_t token = 0; token < routing_.num_tokens; ++token) {
      for (std::int64_t i = 0; i < kHidden; ++i) {
        float sum = 0;
        for (std::int64_t entry = token * routing_.top_k; entry < (token + 1) * routing_.top_k; ++entry) {
          const auto at = static_cast<std::size_t>(entry);
          if (plan_.row_of_entry[at] < 0) continue;
          const float x = BFloat16::load(rows_[static_cast<std::size_t>(plan_.row_of_entry[at] * kHidden + i)]);
          const float y = BFloat16::load(BFloat16::store(Expert(routing_.expert_ids[at])(x)));
          sum += GetParam() == WeightMode::on_combine ? routing_.weights[at] * y : y;
        }
        output_[static_cast<std::size_t>(token * kHidden + i)] = BFloat16::store(sum);
      }
    }
  }

  std::int64_t wrong_rows() {
    Mismatches mismatches;
    check_rows(moe_, 0, plan_.num_rows(), bytes(rows_), team_, mismatches);
    return mismatches.count();
  }
  std::int64_t wrong_outputs() {
    Mismatches mismatches;
    check_output(moe_, 0, routing_.num_tokens, bytes(output_), team_, mismatches);
    return mismatches.count();
  }
  static const std::byte* bytes(const std::vector<std::uint16_t>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }

  Routing routing_ = make_routing(RoutingKind::uniform, 40, 8, 3, 11);
  Placement placement_ = make_placement(1, 1, 8, 1);
  Sources sources_ = Sources({routing_});
  RowPlan plan_ = plan_packed_rows(sources_, placement_, 0, 8);
  MoeCase moe_{.sources = &sources_,
               .placement = &placement_,
               .plan = &plan_,
               .tokens = {{DataType::bfloat16, 40, kHidden * 2, 12}},
               .weight_mode = GetParam(),
               .hidden = kHidden};
  std::vector<std::uint16_t> rows_ =
      std::vector<std::uint16_t>(static_cast<std::size_t>(plan_.num_rows() * kHidden), 0xFFFF);
  std::vector<std::uint16_t> output_ = std::vector<std::uint16_t>(40 * kHidden);
  Team team_{2};
};

TEST_P(MoeReference, WhatIsRightPassesWhateverPadsHold) {
  EXPECT_EQ(wrong_rows(), 0);
  EXPECT_EQ(wrong_outputs(), 0);
}

TEST_P(MoeReference, OneFlippedBitIsOneWrongValue) {
  rows_[static_cast<std::size_t>(plan_.row_of_entry[5] * kHidden + 7)] ^= 1;
  EXPECT_EQ(wrong_rows(), 1);
  output_.back() ^= 1;
  EXPECT_EQ(wrong_outputs(), 1);
}

TEST_P(MoeReference, SwappedRowsAreWrong) {
  auto* a = rows_.data() + plan_.row_of_entry[0] * kHidden;
  auto* b = rows_.data() + plan_.row_of_entry[3] * kHidden;
  std::swap_ranges(a, a + kHidden, b);
  EXPECT_GT(wrong_rows(), kHidden);
}

TEST_P(MoeReference, TokenAtTheWrongExpertDoesNotCancelOut) {
  std::swap(routing_.expert_ids[0], routing_.expert_ids[1]);  // outputs as if the weights had been mixed up
  sum_outputs();
  std::swap(routing_.expert_ids[0], routing_.expert_ids[1]);
  if (GetParam() == WeightMode::on_combine) {
    EXPECT_GT(wrong_outputs(), kHidden / 2);
  }
  routing_.expert_ids[0] = (routing_.expert_ids[0] + 1) % 8;
  sum_outputs();
  EXPECT_GT(wrong_outputs(), kHidden / 2);
}

TEST_P(MoeReference, DroppedEntriesAddNothing) {
  plan_.row_of_entry[4] = -1;
  plan_.expert_of_entry[4] = -1;
  EXPECT_GT(wrong_outputs(), 0);
  sum_outputs();
  EXPECT_EQ(wrong_outputs(), 0);
}

TEST_P(MoeReference, ExpertsRunOnWhatIsThere) {
  std::vector<std::uint16_t> expert_output(rows_.size());
  apply_experts(moe_, 0, plan_.num_rows(), bytes(rows_), nullptr, reinterpret_cast<std::byte*>(expert_output.data()),
                team_);
  const std::int64_t row = plan_.row_of_entry[17];
  const float x = BFloat16::load(rows_[static_cast<std::size_t>(row * kHidden)]);
  EXPECT_EQ(expert_output[static_cast<std::size_t>(row * kHidden)],
            BFloat16::store(Expert(routing_.expert_ids[17])(x)));
}

INSTANTIATE_TEST_SUITE_P(WeightModes, MoeReference,
                         testing::Values(WeightMode::on_combine, WeightMode::on_input, WeightMode::none),
                         [](const auto& mode) { return std::string(name_of(mode.param)); });

TEST(Expert, NoTwoExpertsAreTheSameFunction) {
  std::set<std::pair<float, float>> seen;
  for (std::int64_t id = 0; id < 16384; ++id) {
    seen.insert({Expert(id).scale, Expert(id).shift});
  }
  EXPECT_EQ(seen.size(), 16384U);
}

}  // namespace
}  // namespace moelink::perf
