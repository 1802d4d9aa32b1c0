// Two references that share nothing, the one of the perf tools and the one of the tests, say the same of several ranks.
#include <gtest/gtest.h>

#include <random>

#include "perf/reference/moe_reference.hpp"
#include "reference/ranks_moe.hpp"

namespace moelink::perf {
namespace {

constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kMaxTokens = 20;

struct Shape {
  int num_ranks = 1;
  int ranks_per_source = 1;
  std::int64_t num_experts = 8;
  int replicas = 1;
  int top_k = 3;
  Layout layout = Layout::packed;
  int alignment = 1;
  std::int64_t capacity = 1000;  // batched: of each expert
  bool rounded_parts = true;
};

std::string text_of(const Shape& shape) {
  return std::to_string(shape.num_ranks) + "ranks" + std::to_string(shape.ranks_per_source) + "each" +
         std::to_string(shape.num_experts) + "experts" + std::to_string(shape.replicas) + "replicas" +
         std::to_string(shape.top_k) + std::string(name_of(shape.layout)) + std::to_string(shape.capacity) +
         (shape.rounded_parts ? "" : "Fp32");
}

class TwoReferences : public testing::TestWithParam<Shape> {
 protected:
  TwoReferences() {
    for (int source = 0; source < placement_.num_sources(); ++source) {
      const Routing& routing = sources_[source];
      input_.sources.push_back({routing.num_tokens, routing.expert_ids, routing.weights});
      const auto seed = static_cast<std::uint64_t>(100 + source);
      tokens_.push_back({DataType::bfloat16, routing.num_tokens, kHidden * 2, seed});
    }
    for (int rank = 0; rank < shape_.num_ranks; ++rank) {
      plans_.push_back(shape_.layout == Layout::packed
                           ? plan_packed_rows(sources_, placement_, rank, shape_.alignment)
                           : plan_batched_rows(sources_, placement_, rank, shape_.capacity));
    }
  }

  /// Different numbers of tokens, none among them; entries that are unused, twice there, or none at all.
  static Sources make_sources(const Shape& shape, const Placement& placement) {
    std::mt19937 random(7);
    std::vector<Routing> routings;
    for (int source = 0; source < placement.num_sources(); ++source) {
      const std::int64_t num_tokens = source == 1 ? 0 : 5 + source * 7 % 15;
      routings.push_back(make_routing(RoutingKind::zipf, num_tokens, shape.num_experts, shape.top_k, random()));
      for (std::int64_t& id : routings.back().expert_ids) {
        const auto kind = random() % 8;
        if (kind == 0) id = -1;
        if (kind == 1) id = shape.num_experts + 3;
        if (kind == 2) id = routings.back().expert_ids.front();
      }
    }
    return Sources(std::move(routings));
  }

  MoeCase case_of(int rank) const {
    return {.sources = &sources_,
            .placement = &placement_,
            .plan = &plans_[static_cast<std::size_t>(rank)],
            .tokens = tokens_,
            .hidden = kHidden,
            .rounded_parts = shape_.rounded_parts};
  }

  /// Rows of a rank, as the plan says, after its experts. Pads are NaN.
  std::vector<std::uint16_t> expert_output_of(int rank) {
    const MoeCase moe = case_of(rank);
    std::vector<std::uint16_t> rows(static_cast<std::size_t>(moe.plan->num_rows() * kHidden), 0xFFFF);
    auto* bytes = reinterpret_cast<std::byte*>(rows.data());
    for (std::int64_t row = 0; row < moe.plan->num_rows(); ++row) {
      const std::int64_t entry = moe.plan->entry_of_row[static_cast<std::size_t>(row)];
      if (entry < 0) continue;
      const Sources::Entry from = sources_.locate(entry);
      tokens_[static_cast<std::size_t>(from.source)].make_row(from.entry / shape_.top_k, bytes + row * kHidden * 2);
    }
    apply_experts(moe, 0, moe.plan->num_rows(), bytes, nullptr, bytes, team_);
    return rows;
  }

  const Shape shape_ = GetParam();
  Placement placement_ = make_placement(shape_.num_ranks, shape_.ranks_per_source, shape_.num_experts, shape_.replicas);
  Sources sources_ = make_sources(shape_, placement_);
  reference::RanksInput input_{.num_ranks = shape_.num_ranks,
                               .tp_size = shape_.ranks_per_source,
                               .num_experts = shape_.num_experts,
                               .top_k = shape_.top_k,
                               .max_tokens = kMaxTokens,
                               .expert_map = placement_.expert_map,
                               .num_physical_experts = placement_.num_experts,
                               .max_replicas = shape_.replicas,
                               .layout = shape_.layout,
                               .alignment = shape_.alignment,
                               .capacity = shape_.capacity};
  std::vector<RandomMatrix> tokens_;
  std::vector<RowPlan> plans_;
  Team team_{1};
};

TEST_P(TwoReferences, AgreeOnRows) {
  for (int rank = 0; rank < shape_.num_ranks; ++rank) {
    SCOPED_TRACE(rank);
    const reference::RankRouting theirs = reference::route_rank(input_, rank);
    const RowPlan& ours = plans_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(ours.offsets, theirs.rows.offsets);
    EXPECT_EQ(ours.counts, theirs.rows.counts);
    EXPECT_EQ(ours.expert_of_row, theirs.rows.expert_of_row);
    EXPECT_EQ(ours.over_capacity, theirs.rows.rows_over_capacity);
    EXPECT_EQ(ours.out_of_range, theirs.ids_out_of_range);
    for (std::size_t row = 0; row < ours.entry_of_row.size(); ++row) {
      const auto [source, entry] = theirs.entry_of_row[row];
      EXPECT_EQ(ours.entry_of_row[row], source < 0 ? -1 : sources_.first_entry(source) + entry) << "row " << row;
    }
    std::int64_t dropped = 0;
    for (int peer = 0; peer < shape_.num_ranks; ++peer) {
      const auto source = static_cast<std::size_t>(placement_.source_of(rank));
      if (peer != rank) dropped += reference::route_rank(input_, peer).dropped[source];
    }
    EXPECT_EQ(ours.dropped_by_peers, dropped);
  }
}

TEST_P(TwoReferences, AgreeOnSums) {
  const auto routings = reference::route_ranks(input_);
  reference::RanksCombineInput combine{.hidden = kHidden, .fp32_partials = !shape_.rounded_parts};
  std::vector<std::vector<std::uint16_t>> outputs_of_experts;
  for (int rank = 0; rank < shape_.num_ranks; ++rank) outputs_of_experts.push_back(expert_output_of(rank));
  for (const auto& rows : outputs_of_experts) combine.expert_output.push_back(rows.data());
  for (int rank = 0; rank < shape_.num_ranks; ++rank) {
    SCOPED_TRACE(rank);
    const int source = placement_.source_of(rank);
    const std::int64_t num_tokens = sources_[source].num_tokens;
    std::vector<std::uint16_t> output(static_cast<std::size_t>(num_tokens * kHidden));
    reference::combine_data_parallel(input_, routings, combine, source, output.data());
    if (placement_.num_sources() == 1) {
      std::vector<std::uint16_t> tensor_parallel(output.size());
      reference::combine_tensor_parallel(input_, routings, combine, tensor_parallel.data());
      EXPECT_EQ(output, tensor_parallel);
    }
    Mismatches mismatches;
    check_output(case_of(rank), 0, num_tokens, reinterpret_cast<const std::byte*>(output.data()), team_, mismatches);
    EXPECT_EQ(mismatches.count(), 0) << mismatches.first();
    if (num_tokens == 0) continue;
    output[output.size() / 2] ^= 1;
    check_output(case_of(rank), 0, num_tokens, reinterpret_cast<const std::byte*>(output.data()), team_, mismatches);
    EXPECT_EQ(mismatches.count(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TwoReferences,
    testing::Values(Shape{}, Shape{.num_ranks = 2, .alignment = 8}, Shape{.num_ranks = 3, .rounded_parts = false},
                    Shape{.num_ranks = 4, .ranks_per_source = 2}, Shape{.num_ranks = 4, .ranks_per_source = 4},
                    Shape{.num_ranks = 4, .ranks_per_source = 4, .rounded_parts = false},
                    Shape{.num_ranks = 3, .replicas = 3}, Shape{.num_ranks = 6, .num_experts = 4, .replicas = 2},
                    Shape{.num_ranks = 8, .num_experts = 5, .top_k = 1},
                    Shape{.num_ranks = 3, .layout = Layout::batched, .capacity = 4},
                    Shape{.num_ranks = 4, .ranks_per_source = 2, .layout = Layout::batched, .capacity = 3}),
    [](const auto& shape) { return text_of(shape.param); });

}  // namespace
}  // namespace moelink::perf
