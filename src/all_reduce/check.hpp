// What an AllReduce is asked, checked before anything is enqueued.
#pragma once

#include <string>

#include "all_reduce/plan.hpp"
#include "moelink/all_reduce.hpp"
#include "moelink/protocol/element.hpp"

namespace moelink {

/// Throws invalid_argument, naming value, expectation and what to do. Returns the element type.
Element check_config(const AllReduceConfig& config);

/// Whether the switch may sum: what the caller allows. What the machine allows is the transports' to say.
[[nodiscard]] bool may_use_nvls(const AllReduceConfig& config);

/// Throws ErrorCode::unsupported if NVLS was asked for by name and cannot be had, for this reason (empty: it can).
void check_nvls(const AllReduceConfig& config, const std::string& why_not);

/// Throws ErrorCode::unsupported if pack was asked for by name and cannot be had, for this reason (empty: it can).
void check_pack(const AllReduceConfig& config, const std::string& why_not);

/// If push or pack is the only algorithm allowed, it must carry the longest message.
void check_lines_alone(const AllReduceConfig& config, const AllReduceFacts& facts);

/// Throws invalid_argument unless 0 <= num_elements <= max_elements.
void check_num_elements(i64 num_elements, const AllReduceConfig& config);
void check_call(const AllReduceArgs& args, const AllReduceConfig& config);

}  // namespace moelink
