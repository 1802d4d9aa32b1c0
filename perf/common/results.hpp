// Results for programs: JSON and CSV files, and the exit code.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace moelink::perf {

/// All rows of one run. A row is a flat JSON object; every row of a run has the same keys in the same order.
class Results {
 public:
  explicit Results(std::string tool);
  ~Results();

  /// `wrong`: wrong values seen; none if nothing was checked.
  void add(nlohmann::ordered_json row, std::optional<std::int64_t> wrong);

  /// {"tool", "version", "rows": [...]}. Throws Error(system) if the file cannot be written.
  void write_json(const std::string& path) const;
  /// A header line with the keys, then a line per row. Null is an empty field.
  void write_csv(const std::string& path) const;

  [[nodiscard]] std::int64_t wrong() const noexcept { return wrong_; }
  [[nodiscard]] bool checked() const noexcept { return checked_; }
  /// 0 if something was measured and nothing was wrong, else 1.
  [[nodiscard]] int exit_code() const noexcept;

 private:
  std::string tool_;
  std::vector<nlohmann::ordered_json> rows_;
  std::int64_t wrong_ = 0;
  bool checked_ = false;
};

/// Throws UsageError now if the file cannot be created: not after minutes of measuring. Empty path: nothing.
void require_writable(const std::string& path);

}  // namespace moelink::perf
