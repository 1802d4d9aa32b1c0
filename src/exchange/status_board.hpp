// What the device reports: data errors and calls out of order, read from pinned host memory without waiting.
#pragma once

#include "moelink/exchange.hpp"
#include "moelink/protocol/local_moe.hpp"

namespace moelink {

class StatusBoard {
 public:
  /// Written by the device; outlives this.
  explicit StatusBoard(ExchangeStatus* status) noexcept : status_(status) {}

  /// Data errors that throw_data_errors has not yet reported.
  [[nodiscard]] DataErrors data_errors() const noexcept;
  /// Throws ErrorCode::data if there are any, each once.
  void throw_data_errors();
  /// Throws, if calls ran out of order on the device; again and again.
  void throw_calls_out_of_order() const;

 private:
  ExchangeStatus* status_;
  DataErrors reported_;
};

}  // namespace moelink
