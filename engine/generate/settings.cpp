#include "engine/generate/settings.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "moelink/error.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::engine {
namespace {

using perf::UsageError;

std::string contents_of(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw UsageError(fmt::format("--file: '{}' is a folder; give a file with a text", path));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  // A stream sets badbit where reading fails; its iterators would let the library's own exception through.
  if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(contents << file.rdbuf())) || file.bad()) {
    throw UsageError(fmt::format("--file: '{}' cannot be read", path));
  }
  return contents.str();
}

}  // namespace

void GenerateFlags::add_to(CLI::App& app) {
  engine.add_to(app);
  const auto texts = [&](const char* name, std::vector<std::string>& values, const char* help) {
    return app.add_option(name, values, help)->allow_extra_args(false)->group("Request");
  };
  texts("-p,--prompt", prompts, "a text to continue; may be repeated");
  texts("-f,--file", files, "a file with such a text; may be repeated");
  app.add_option("-n,--max-tokens", max_tokens, "tokens to generate; 0: as many as sequences can hold")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->capture_default_str()
      ->group("Request");
  app.add_option("--temperature", sampling.temperature, "0: the likeliest token, always")
      ->capture_default_str()
      ->group("Request");
  app.add_option("--top-k", sampling.top_k, "only so many of the likeliest tokens; 0: all")
      ->capture_default_str()
      ->group("Request");
  app.add_option("--top-p", sampling.top_p, "of those, the fewest that reach this probability together")
      ->capture_default_str()
      ->group("Request");
  app.add_flag("--ignore-end", ignore_end, "go on behind the model's end tokens")->group("Request");
  app.add_flag("--show-tokens", show_tokens, "print ids of tokens instead of text")->group("Request");
}

GenerateSettings::GenerateSettings(const GenerateFlags& flags)
    : prompts(flags.prompts), model(flags.engine.model_options()) {
  for (const std::string& path : flags.files) {
    prompts.push_back(contents_of(path));
  }
  if (prompts.empty()) {
    throw UsageError("nothing to continue: give --prompt or --file");
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) throw UsageError(fmt::format("prompt {} is empty: give it at least one character", i + 1));
  }
  try {
    check_sampling(flags.sampling);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace moelink::engine
