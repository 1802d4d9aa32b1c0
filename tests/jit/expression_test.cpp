// moelink/kernel_expression.hpp, jit/kernel_request.hpp
#include "moelink/kernel_expression.hpp"

#include <gtest/gtest.h>

#include "jit/support.hpp"

#include <limits>

#include "moelink/protocol/all_reduce.hpp"
#include "moelink/protocol/local_moe.hpp"

namespace moelink {
namespace {

using test::Colour;
using test::FillSpec;

TEST(Expression, EveryFieldAppearsInOrderWithATypeThatHoldsIt) {
  EXPECT_EQ(to_expression(FillSpec{.bytes = 14336, .threads = 256, .colour = Colour::green}),
            "moelink::test::FillSpec{14336L, 256, moelink::test::Colour(1UL)}");
}

TEST(Expression, TheSmallestNumbersAreNotLiteralsThatOverflow) {
  EXPECT_EQ(to_literal(std::numeric_limits<long>::min()), "(-9223372036854775807L - 1)");
  EXPECT_EQ(to_literal(std::numeric_limits<int>::min()), "-2147483648");
  EXPECT_EQ(to_literal(std::numeric_limits<long>::max()), "9223372036854775807L");
  EXPECT_EQ(to_literal(std::numeric_limits<unsigned long>::max()), "18446744073709551615UL");
}

TEST(Expression, BoolIsNotANumber) { EXPECT_EQ(to_literal(true), "true"); }

TEST(Expression, SpecsThatDifferInOneFieldAreDifferentKernels) {
  const auto request = [](FillSpec spec) { return make_request<test::Fill>(spec); };
  const FillSpec spec{.bytes = 16, .threads = 32, .colour = Colour::red};
  FillSpec other = spec;
  other.colour = Colour::green;
  EXPECT_EQ(request(spec), request(spec));
  EXPECT_NE(request(spec), request(other));
}

TEST(Expression, RequestNamesEntryKernelAndSpec) {
  const KernelRequest request = test::fill_request(64);
  EXPECT_EQ(request.name, "Fill");
  EXPECT_EQ(request.header, "moelink/test/fill.cuh");
  EXPECT_EQ(request.threads, 128);
  EXPECT_EQ(request.expression,
            "moelink::entry<moelink::test::Fill, moelink::test::FillSpec{64L, 128, moelink::test::Colour(1UL)}>");
}

// fields() is written by hand: a member that it forgets would not be in the name, and two different kernels would be
// one.
template <class Spec>
std::size_t num_fields() {
  return Spec{}.fields([](const auto&... fields) { return sizeof...(fields); });
}
struct AnyValue {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): initialises a member of any type
};
template <class Spec, class... Values>
constexpr std::size_t num_members(Values... values) {
  if constexpr (requires { Spec{values..., AnyValue{}}; }) {
    return num_members<Spec>(values..., AnyValue{});
  } else {
    return sizeof...(values);
  }
}

TEST(Expression, NoSpecForgetsAMemberInItsFields) {
  EXPECT_EQ(num_fields<FillSpec>(), num_members<FillSpec>());
  EXPECT_EQ(num_fields<LocalDispatchSpec>(), num_members<LocalDispatchSpec>());
  EXPECT_EQ(num_fields<LocalCombineSpec>(), num_members<LocalCombineSpec>());
  EXPECT_EQ(num_fields<AllReduceSpec>(), num_members<AllReduceSpec>());
}

}  // namespace
}  // namespace moelink
