#include "perf/moe/rival.hpp"

#include "perf/moe/separate.hpp"

namespace moelink::perf {

std::string baseline_name(const MoeFlags& flags, const MoeSettings& settings) {
  if (flags.baseline == "none" && settings.mode == Mode::tensor_parallel) return "separate";
  return flags.baseline;
}

std::unique_ptr<Rival> make_rival(const std::string& name, const MoeSettings& settings, const MoeSets& sets,
                                  const Communicator& communicator, StreamView stream) {
  if (name == "separate") return std::make_unique<Separate>(settings, sets, communicator, stream);
  return nullptr;
}

}  // namespace moelink::perf
