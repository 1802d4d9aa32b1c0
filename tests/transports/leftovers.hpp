// What a process holds, to see that it holds no more afterwards.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>

namespace moelink::test {

/// Open descriptors, mappings of our memory files, and entries in a socket directory.
struct Leftovers {
  long descriptors = 0;
  long mappings = 0;
  long files = 0;
  friend bool operator==(const Leftovers&, const Leftovers&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Leftovers& left) {
    return out << left.descriptors << " descriptors, " << left.mappings << " mappings, " << left.files << " files";
  }
};

/// Mappings are counted by `marker` in /proc/self/maps: all of them would also count what malloc and threads keep.
inline Leftovers count_leftovers(const std::string& socket_directory, const std::string& marker = "moelink") {
  Leftovers now;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++now.descriptors;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    now.mappings += line.find("/memfd:" + marker) != std::string::npos ? 1 : 0;
  }
  if (std::filesystem::exists(socket_directory)) {
    for ([[maybe_unused]] const auto& entry : std::filesystem::recursive_directory_iterator(socket_directory)) {
      ++now.files;
    }
  }
  return now;
}

/// A directory of this test alone; removed with it, whatever is in it.
class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "moelink-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  [[nodiscard]] std::string path() const { return path_ + "/sockets"; }

 private:
  std::string path_;
};

}  // namespace moelink::test
