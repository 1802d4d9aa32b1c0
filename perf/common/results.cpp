#include "perf/common/results.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "moelink/error.hpp"
#include "moelink/version.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) {
    throw Error(ErrorCode::system, fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }
}

std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted(1, '"');
  for (const char c : text) {
    quoted.append(c == '"' ? 2 : 1, c);
  }
  quoted.push_back('"');
  return quoted;
}

}  // namespace

Results::Results(std::string tool) : tool_(std::move(tool)) {}

Results::~Results() = default;

int Results::exit_code() const noexcept { return rows_.empty() || wrong_ != 0 ? 1 : 0; }

void Results::add(nlohmann::ordered_json row, std::optional<std::int64_t> wrong) {
  rows_.push_back(std::move(row));
  wrong_ += wrong.value_or(0);
  checked_ = checked_ || wrong.has_value();
}

void Results::write_json(const std::string& path) const {
  const nlohmann::ordered_json document = {
      {"tool", tool_}, {"version", MOELINK_VERSION}, {"rows", nlohmann::ordered_json(rows_)}};
  write_file(path, document.dump(1) + '\n');
}

void Results::write_csv(const std::string& path) const {
  std::string text;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::string keys;
    std::string values;
    for (const auto& [key, value] : rows_[i].items()) {
      if (!keys.empty()) {
        keys += ',';
        values += ',';
      }
      keys += key;
      values += csv_field(value);
    }
    if (i == 0) text += keys + '\n';
    text += values + '\n';
  }
  write_file(path, text);
}

void require_writable(const std::string& path) {
  if (path.empty()) return;
  if (!std::ofstream(path, std::ios::app)) {
    throw UsageError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }
}

}  // namespace moelink::perf
