#include "transports/together.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <vector>

#include "moelink/error.hpp"
#include "transports/gather.hpp"

namespace moelink {
namespace {

struct Outcome {
  bool failed = false;
  std::array<char, 400> words{};
};

struct StepResult {
  std::exception_ptr mine;  ///< what this rank's step threw
  std::string reason;       ///< "rank 3 failed while ...: ..."; empty if no rank's did
};

std::exception_ptr run_step(Rendezvous& rendezvous, const std::function<void()>& step, Outcome& outcome) {
  std::string_view words = "an exception of unknown type";
  std::string kept;
  std::exception_ptr thrown;
  try {
    step();
    return nullptr;
  } catch (const std::exception& error) {
    thrown = std::current_exception();
    words = kept = error.what();
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->code() == ErrorCode::timeout) rendezvous.give_up(words);
  } catch (...) {
    thrown = std::current_exception();
  }
  outcome.failed = true;
  words.copy(outcome.words.data(), outcome.words.size() - 1);
  return thrown;
}

StepResult take_step(Rendezvous& rendezvous, std::string_view what, const std::function<void()>& step) {
  Outcome mine;
  StepResult result{run_step(rendezvous, step, mine), ""};
  std::vector<Outcome> all;
  try {
    all = gather<Outcome>(rendezvous, std::span(&mine, 1));
  } catch (...) {
    // What failed here says more than that the others could not be told.
    if (result.mine != nullptr) {
      std::rethrow_exception(result.mine);
    }
    throw;
  }
  const auto failed = std::ranges::find_if(all, [](const Outcome& outcome) { return outcome.failed; });
  if (failed != all.end()) {
    failed->words.back() = '\0';
    result.reason = "rank " + std::to_string(failed - all.begin()) + " failed while " + std::string(what) + ": " +
                    failed->words.data();
  }
  return result;
}

}  // namespace

void together(Rendezvous& rendezvous, std::string_view what, const std::function<void()>& step) {
  const StepResult result = take_step(rendezvous, what, step);
  if (result.mine != nullptr) {
    std::rethrow_exception(result.mine);
  }
  if (!result.reason.empty()) {
    throw Error(ErrorCode::peer, result.reason);
  }
}

std::string try_together(Rendezvous& rendezvous, std::string_view what, const std::function<void()>& step) {
  return take_step(rendezvous, what, step).reason;
}

}  // namespace moelink
