// Tables in the manner of nccl-tests: lines for people start with '#', one line of numbers per result.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace moelink::perf {

struct Column {
  std::string name;
  std::string unit;  ///< second line of the header; empty: none
  int width = 10;
};

class Table {
 public:
  Table(std::ostream& out, std::vector<Column> columns) : out_(out), columns_(std::move(columns)) {}

  /// A line for people.
  void comment(const std::string& text);
  void header();
  /// One cell per column, flushed at once: a sweep is followed while it runs.
  void row(const std::vector<std::string>& cells);

 private:
  std::ostream& out_;
  std::vector<Column> columns_;
};

/// Cells: microseconds and GB/s with three or four digits that count; "N/A" for what was not checked.
[[nodiscard]] std::string time_cell(double us);
[[nodiscard]] std::string rate_cell(double gbps);
[[nodiscard]] std::string percent_cell(double fraction);
[[nodiscard]] std::string wrong_cell(const std::optional<std::int64_t>& wrong);

}  // namespace moelink::perf
