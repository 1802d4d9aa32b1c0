#include "perf/common/table.hpp"

#include <fmt/format.h>

#include <ostream>

namespace moelink::perf {

void Table::comment(const std::string& text) { out_ << "# " << text << std::endl; }

void Table::header() {
  std::string names = "#";
  std::string units = "#";
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const int width = columns_[i].width - (i == 0 ? 1 : 0);  // the '#' takes a place
    names += fmt::format("{:>{}} ", columns_[i].name, width);
    units += fmt::format("{:>{}} ", columns_[i].unit.empty() ? "" : "(" + columns_[i].unit + ")", width);
  }
  out_ << names << '\n' << units << std::endl;
}

void Table::row(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    line += fmt::format("{:>{}} ", i < cells.size() ? cells[i] : "", columns_[i].width);
  }
  out_ << line << std::endl;
}

std::string time_cell(double us) {
  return us < 100 ? fmt::format("{:.2f}", us) : us < 10000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

std::string rate_cell(double gbps) { return fmt::format("{:.2f}", gbps); }

std::string percent_cell(double fraction) { return fmt::format("{:.1f}", 100 * fraction); }

std::string wrong_cell(const std::optional<std::int64_t>& wrong) { return wrong ? fmt::format("{}", *wrong) : "N/A"; }

}  // namespace moelink::perf
