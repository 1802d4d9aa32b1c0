// What the device reports: data errors and calls out of order, read from pinned host memory without waiting.
#pragma once

#include "moelink/exchange.hpp"
#include "moelink/protocol/fault.hpp"
#include "moelink/protocol/local_moe.hpp"

namespace moelink {

class StatusBoard {
 public:
  /// Both are written by the device, and outlive this.
  StatusBoard(ExchangeStatus* status, const FaultRecord* fault) noexcept : status_(status), fault_(fault) {}

  /// Data errors that take_data_errors has not yet returned.
  [[nodiscard]] DataErrors data_errors() const noexcept;
  [[nodiscard]] DataErrors take_data_errors() noexcept;

  /// Throws the fault that the device met, if any: a call out of order, or a wait that expired. It stays.
  void throw_fault() const;
  /// Throws the fault, else ErrorCode::data if there are new data errors.
  void check();

 private:
  ExchangeStatus* status_;
  const FaultRecord* fault_;
  DataErrors reported_;
};

}  // namespace moelink
