#include "base/fault.hpp"

#include <atomic>
#include <iomanip>
#include <iterator>

#include "base/text.hpp"

namespace moelink {
namespace {

std::string rank_name(int rank) { return text("rank ", rank); }

bool is_all_reduce(FaultPhase phase) {
  return phase == FaultPhase::all_reduce_push || phase == FaultPhase::all_reduce_pack ||
         phase == FaultPhase::all_reduce_stream || phase == FaultPhase::all_reduce_staged ||
         phase == FaultPhase::all_reduce_reduced;
}

std::string wait_of(const FaultRecord& record) {
  const FaultPhase phase = record.fault.phase;
  const std::string whom = record.fault.peer >= 0 ? rank_name(record.fault.peer) : "its own blocks";
  // Lengths are compared inside an algorithm, and which one runs depends on the length.
  const std::string why =
      is_all_reduce(phase) ? text("; ", whom, " made no such call, or passed another length to it") : "";
  return text("waited ", std::fixed, std::setprecision(3), static_cast<double>(record.waited_ns) * 1e-9, " s for ",
              whom, " in ", name_of(phase), " of epoch ", record.epoch, ": expected ", record.expected, ", saw ",
              record.seen, why);
}

ErrorCode code_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::wait_expired:
      return ErrorCode::timeout;
    case FaultKind::out_of_order:
      return ErrorCode::out_of_order;
    case FaultKind::aborted:
      return ErrorCode::aborted;
    case FaultKind::mismatch:
      return ErrorCode::mismatch;
    case FaultKind::none:
    case FaultKind::peer_fault:
    case FaultKind::link_broken:
      return ErrorCode::peer;
  }
  return ErrorCode::peer;
}

std::string_view element_name(u64 element) {
  constexpr std::string_view kNames[] = {"bytes", "bf16", "fp16", "fp32"};
  return element < std::size(kNames) ? kNames[element] : "what is no type";
}

std::string mismatch_of(const FaultRecord& record) {
  const std::string us = rank_name(record.rank);
  const std::string them = rank_name(record.fault.rank);
  const std::string peer = rank_name(record.fault.peer);
  const std::string where = text(name_of(record.fault.phase), " of epoch ", record.epoch);
  const bool is_ours = record.rank == record.fault.rank;
  if (record.fault.phase == FaultPhase::dispatch_receive) {
    return text(peer, " passed something else than ", them, " to ", where,
                is_ours ? text(" (", record.expected, " expected, ", record.seen, " found)") : "",
                ": payload and reuse_routing must be equal on all ranks; tokens, ids and weights within a group");
  }
  if (record.fault.phase == FaultPhase::tp_inputs) {
    return text(them, " and ", peer,
                " passed different inputs to one call, though mode tensor_parallel has them replicated: token counts, "
                "expert ids, weights, max_sms, accumulate and the type of the output must be the same on every rank");
  }
  if (record.fault.phase == FaultPhase::combine_receive) {
    return text(
        peer, " gave expert outputs of another type than ", them, " to combine, which met them in ", where,
        is_ours ? text(" (", element_name(record.expected), " expected, ", element_name(record.seen), " found)") : "",
        "; every rank must give the same");
  }
  return text(them, " and ", peer, " passed different lengths to ", where,
              is_ours ? text(" (", us, ": ", record.expected, " elements)") : "", "; every rank must pass the same");
}

}  // namespace

std::string_view name_of(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::none:
      return "none";
    case FaultKind::wait_expired:
      return "wait_expired";
    case FaultKind::peer_fault:
      return "peer_fault";
    case FaultKind::out_of_order:
      return "out_of_order";
    case FaultKind::link_broken:
      return "link_broken";
    case FaultKind::aborted:
      return "aborted";
    case FaultKind::mismatch:
      return "mismatch";
  }
  return "unknown";
}

std::string_view name_of(FaultPhase phase) noexcept {
  switch (phase) {
    case FaultPhase::none:
      return "none";
    case FaultPhase::grid_barrier:
      return "grid_barrier";
    case FaultPhase::peer_barrier:
      return "peer_barrier";
    case FaultPhase::dispatch_send:
      return "dispatch_send";
    case FaultPhase::dispatch_receive:
      return "dispatch_receive";
    case FaultPhase::combine_send:
      return "combine_send";
    case FaultPhase::combine_receive:
      return "combine_receive";
    case FaultPhase::all_reduce_push:
      return "all_reduce_push";
    case FaultPhase::all_reduce_pack:
      return "all_reduce_pack";
    case FaultPhase::all_reduce_stream:
      return "all_reduce_stream";
    case FaultPhase::all_reduce_staged:
      return "all_reduce_staged";
    case FaultPhase::all_reduce_reduced:
      return "all_reduce_reduced";
    case FaultPhase::proxy:
      return "proxy";
    case FaultPhase::tp_inputs:
      return "tp_inputs";
    case FaultPhase::tp_push:
      return "tp_push";
    case FaultPhase::tp_pull:
      return "tp_pull";
    case FaultPhase::tp_staged:
      return "tp_staged";
    case FaultPhase::tp_reduced:
      return "tp_reduced";
  }
  return "unknown";
}

std::optional<FaultRecord> read_fault(const FaultRecord& record) noexcept {
  // The device's release of is_complete covers the rest of the record.
  std::atomic_ref<u64> is_complete(const_cast<FaultRecord&>(record).is_complete);
  if (is_complete.load(std::memory_order_acquire) == 0) {
    return std::nullopt;
  }
  FaultRecord copy = {};
  copy.is_complete = 1;
  copy.fault = record.fault;
  copy.rank = record.rank;
  copy.epoch = record.epoch;
  copy.expected = record.expected;
  copy.seen = record.seen;
  copy.waited_ns = record.waited_ns;
  return copy;
}

std::string to_string(const FaultRecord& record) {
  const std::string us = rank_name(record.rank);
  const std::string them = rank_name(record.fault.rank);
  switch (record.fault.kind) {
    case FaultKind::none:
      return us + " has no fault";
    case FaultKind::wait_expired:
      return text(us, " ", wait_of(record));
    case FaultKind::peer_fault:
      return text(them, " reported a fault in ", name_of(record.fault.phase),
                  record.fault.peer >= 0 ? text(", where it waited for ", rank_name(record.fault.peer)) : "");
    case FaultKind::out_of_order:
      return text(them, " was called out of order in ", name_of(record.fault.phase), " of epoch ", record.epoch,
                  ": expected ", record.expected, ", saw ", record.seen);
    case FaultKind::link_broken:
      return text("the link between ", them, " and ", rank_name(record.fault.peer), " broke in ",
                  name_of(record.fault.phase), " of epoch ", record.epoch);
    case FaultKind::aborted:
      return text(them, " gave up (abort) in ", name_of(record.fault.phase), " of epoch ", record.epoch);
    case FaultKind::mismatch:
      return mismatch_of(record);
  }
  return us + " has an unknown fault";
}

Error error_of(const FaultRecord& record, const std::source_location& where) {
  return Error(code_of(record.fault.kind),
               to_string(record) + "; the object is unusable from here on: destroy it on every rank", where);
}

void request_abort(FaultRecord& record) noexcept {
  std::atomic_ref<u64>(record.abort_requested).store(1, std::memory_order_relaxed);
}

}  // namespace moelink
