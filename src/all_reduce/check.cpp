#include "all_reduce/check.hpp"

#include <cstdint>
#include <limits>

#include "all_reduce/plan.hpp"
#include "base/element.hpp"
#include "base/refuse.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

void check_pointer(const char* name, const void* pointer, std::size_t element_bytes) {
  if (pointer == nullptr) {
    refuse(text("AllReduceArgs::", name, " is null; expected memory of the communicator's device"));
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % element_bytes != 0) {
    refuse(
        text("AllReduceArgs::", name, " = ", pointer, " is not aligned to its elements of ", element_bytes, " bytes"));
  }
}

}  // namespace

Element check_config(const AllReduceConfig& config) {
  constexpr i64 kMostElements = std::numeric_limits<i64>::max() / 8;
  if (config.max_elements < 1 || config.max_elements > kMostElements) {
    refuse(text("AllReduceConfig::max_elements is ", config.max_elements, "; expected 1 to ", kMostElements));
  }
  if (config.deterministic && config.algorithm == AllReduceAlgorithm::nvls) {
    refuse(
        "AllReduceConfig::algorithm is nvls and deterministic is true, but the switch sums in an order of its own; set "
        "deterministic = false, or name another algorithm");
  }
  if (name_of(config.algorithm) == "?") {
    refuse(
        text("AllReduceConfig::algorithm is ", static_cast<int>(config.algorithm), ", which is no AllReduceAlgorithm"));
  }
  if (const Element element = element_of(config.type); element != Element::none) {
    return element;
  }
  refuse(text("AllReduceConfig::type is ", static_cast<int>(config.type), " (", name_of(config.type),
              "), which has no sum; expected bfloat16, float16 or float32"));
}

bool may_use_nvls(const AllReduceConfig& config) {
  return !config.deterministic &&
         (config.algorithm == AllReduceAlgorithm::automatic || config.algorithm == AllReduceAlgorithm::nvls);
}

void check_nvls(const AllReduceConfig& config, const std::string& why_not) {
  if (config.algorithm == AllReduceAlgorithm::nvls && !why_not.empty()) {
    throw Error(ErrorCode::unsupported, text("AllReduceConfig::algorithm is nvls, which cannot be used here: ", why_not,
                                             "; leave the choice to `automatic`"));
  }
}

void check_pack(const AllReduceConfig& config, const std::string& why_not) {
  if (config.algorithm == AllReduceAlgorithm::pack && !why_not.empty()) {
    throw Error(ErrorCode::unsupported, text("AllReduceConfig::algorithm is pack, which cannot be used here: ", why_not,
                                             "; leave the choice to `automatic`"));
  }
}

void check_lines_alone(const AllReduceConfig& config, const AllReduceFacts& facts) {
  const bool is_push = config.algorithm == AllReduceAlgorithm::push;
  if (!is_push && config.algorithm != AllReduceAlgorithm::pack) {
    return;
  }
  const i64 most_elements = (is_push ? max_push_bytes(facts) : max_pack_bytes(facts)) / bytes_of(facts.element);
  if (config.max_elements > most_elements) {
    refuse(text("AllReduceConfig::max_elements is ", config.max_elements, ", but the ", name_of(config.algorithm),
                " algorithm alone carries ", most_elements, " here; leave the choice to `automatic`, or name another"));
  }
}

void check_num_elements(i64 num_elements, const AllReduceConfig& config) {
  if (num_elements < 0 || num_elements > config.max_elements) {
    refuse(
        text("AllReduceArgs::num_elements is ", num_elements, "; expected 0 to max_elements = ", config.max_elements));
  }
}

void check_call(const AllReduceArgs& args, const AllReduceConfig& config) {
  check_num_elements(args.num_elements, config);
  if (args.num_elements == 0) {
    return;
  }
  const std::size_t element_bytes = size_of(config.type);
  check_pointer("input", args.input, element_bytes);
  check_pointer("output", args.output, element_bytes);
  const auto input = reinterpret_cast<std::uintptr_t>(args.input);
  const auto output = reinterpret_cast<std::uintptr_t>(args.output);
  const std::uintptr_t size_bytes = static_cast<std::uintptr_t>(args.num_elements) * element_bytes;
  if (input != output && input < output + size_bytes && output < input + size_bytes) {
    refuse("AllReduceArgs::input and output overlap in part; expected the same array (in place) or two apart");
  }
}

}  // namespace moelink
