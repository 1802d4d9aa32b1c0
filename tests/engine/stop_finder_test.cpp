#include "engine/serve/stop_finder.hpp"

#include <gtest/gtest.h>

namespace moelink::engine {
namespace {

/// The parts as they are handed out, and what is left at the end in brackets.
std::string parts_of(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopFinder finder(std::move(stops));
  std::string parts;
  for (const std::string& piece : pieces) parts += finder.push(piece) + "|";
  return parts + (finder.found() ? "found" : "[" + finder.finish() + "]");
}

TEST(StopFinder, TextPassesAtOnceWhereNoStopCanBegin) {
  EXPECT_EQ(parts_of({}, {"ab", "c"}), "ab|c|[]");
  EXPECT_EQ(parts_of({"xy"}, {"ab", "c"}), "ab|c|[]");
}

TEST(StopFinder, WhatMayBeginAStopIsHeldUntilItCannot) {
  EXPECT_EQ(parts_of({"xyz"}, {"ax", "y", "b"}), "a||xyb|[]");
  EXPECT_EQ(parts_of({"xyz"}, {"ax", "y"}), "a||[xy]");
  EXPECT_EQ(parts_of({"xyz"}, {"axyxy", "z"}), "axy||found");
  EXPECT_EQ(parts_of({"aab"}, {"a", "a", "a", "b", "c"}), "||a|||found");
}

TEST(StopFinder, TheFirstOfSeveralStopsEndsTheText) {
  EXPECT_EQ(parts_of({"end", "stop"}, {"one stop two end"}), "one |found");
  EXPECT_EQ(parts_of({"ab", "bc"}, {"xa", "bc"}), "x||found");
}

TEST(StopFinder, AStopIsFoundInTheMiddleOfAPieceAndNothingFollowsIt) {
  EXPECT_EQ(parts_of({"."}, {"a.b", "c"}), "a||found");
}

}  // namespace
}  // namespace moelink::engine
