// What an AllReduce is asked, checked before anything is enqueued.
#pragma once

#include "moelink/all_reduce.hpp"
#include "moelink/protocol/element.hpp"

namespace moelink {

/// Throws invalid_argument, naming value, expectation and what to do. Returns the element type.
Element check_config(const AllReduceConfig& config);

void check_call(const AllReduceArgs& args, const AllReduceConfig& config);

}  // namespace moelink
