// For clang-tidy 14 alone: it lacks the builtin that libstdc++'s <source_location> is made of, and would see no
// std::source_location at all. Included in front of every file by scripts/lint.sh, never by the build.
#pragma once

#if defined(__clang__) && __clang_major__ < 16
namespace std {
class source_location {  // NOLINT(readability-identifier-naming): the standard's name
 public:
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           unsigned line = __builtin_LINE()) noexcept {
    source_location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    return here;
  }
  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  [[nodiscard]] constexpr const char* function_name() const noexcept { return function_; }
  [[nodiscard]] constexpr unsigned line() const noexcept { return line_; }
  [[nodiscard]] constexpr unsigned column() const noexcept { return 0; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  unsigned line_ = 0;
};
}  // namespace std
#endif
