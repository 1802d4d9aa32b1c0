#include "perf/common/tool.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "moelink/environment.hpp"
#include "moelink/version.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

void say(const CLI::App& app, const std::string& what) { fmt::print(stderr, "{}: {}\n", app.get_name(), what); }

int usage(const CLI::App& app, const std::string& what) {
  say(app, fmt::format("{} ({} --help lists all flags)", what, app.get_name()));
  return kExitUsage;
}

std::string environment_error() {
  try {
    check_environment();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

int run_tool(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body) {
  app.set_version_flag("--version", MOELINK_VERSION);
  app.footer(
      fmt::format("Environment:\n{}\nExit code: 0 good; 1 wrong values, nothing measured, or an error; 2 flags "
                  "that cannot be followed.",
                  describe_environment()));
  for (CLI::Option* option : app.get_options()) {
    option->multi_option_policy(
        CLI::MultiOptionPolicy::TakeLast);  // scripts give defaults, their callers override them
  }
  try {
    app.parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    const std::string of_variable = environment_error();  // flags take what variables say, and would be blamed for it
    return usage(app, of_variable.empty() ? error.what() : of_variable);
  } catch (const UsageError& error) {
    return usage(app, error.what());
  } catch (const std::bad_alloc&) {
    say(app, "out of host memory; use fewer tokens or --sets 1");
  } catch (const std::exception& error) {
    say(app, error.what());
  }
  return kExitWrong;
}

}  // namespace moelink::perf
