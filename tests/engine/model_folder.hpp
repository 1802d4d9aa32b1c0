// A model's folder that a test may spoil: files of tests/data, or files that the test writes.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "support/temporary_directory.hpp"

namespace moelink::engine::testing {

inline std::filesystem::path data_folder(const std::string& model) {
  return std::filesystem::path(MOELINK_TEST_DATA) / model;
}

inline nlohmann::json load_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

class ModelFolder {
 public:
  ModelFolder() = default;
  /// With copies of all files of a model in tests/data.
  explicit ModelFolder(const std::string& model) { std::filesystem::copy(data_folder(model), path()); }

  [[nodiscard]] const std::filesystem::path& path() const { return directory_.path(); }

  std::filesystem::path write(const std::string& name, std::string_view contents) const {
    std::ofstream(path() / name, std::ios::binary) << contents;
    return path() / name;
  }

  /// Changes a JSON file: change(document).
  template <class Change>
  std::filesystem::path edit(const std::string& name, Change&& change) const {
    nlohmann::json document = load_json(path() / name);
    change(document);
    return write(name, document.dump());
  }

 private:
  test::TemporaryDirectory directory_;
};

}  // namespace moelink::engine::testing
