#include "transports/together.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "moelink/error.hpp"

namespace moelink {
namespace {

struct Outcome {
  bool failed = false;
  std::array<char, 400> words{};
};

void describe(Outcome& outcome, const char* words) {
  outcome.failed = true;
  std::strncpy(outcome.words.data(), words, outcome.words.size() - 1);
}

}  // namespace

void together(Rendezvous& rendezvous, std::string_view what, const std::function<void()>& step) {
  Outcome mine;
  std::exception_ptr failure;
  try {
    step();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    describe(mine, error.what());
  } catch (...) {
    failure = std::current_exception();
    describe(mine, "an exception of unknown type");
  }
  std::vector<Outcome> all(static_cast<std::size_t>(rendezvous.size()));
  try {
    rendezvous.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  } catch (...) {
    // What failed first says more than that the others could not be told.
    if (failure == nullptr) {
      throw;
    }
  }
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
  const auto failed = std::ranges::find_if(all, [](const Outcome& outcome) { return outcome.failed; });
  if (failed != all.end()) {
    failed->words.back() = '\0';
    throw Error(ErrorCode::peer, "rank " + std::to_string(failed - all.begin()) + " failed while " + std::string(what) +
                                     ": " + failed->words.data());
  }
}

}  // namespace moelink
