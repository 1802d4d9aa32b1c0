#include "perf/moe/rival.hpp"

#include <fmt/format.h>

#include "perf/moe/all_gather.hpp"
#include "perf/moe/all_to_all.hpp"
#include "perf/moe/send_receive.hpp"
#include "perf/moe/separate.hpp"

namespace moelink::perf {

std::string baseline_name(const MoeFlags& flags, const MoeSettings& settings) {
  if (flags.baseline == "none" && settings.mode == Mode::tensor_parallel) return "separate";
  return flags.baseline;
}

std::optional<CollectivesKind> collectives_of_baseline(const std::string& name) {
  if (name == "allgather") return CollectivesKind::best;
  if (name == "nccl") return CollectivesKind::nccl;
  if (name == "mpi") return CollectivesKind::mpi;
  return std::nullopt;
}

std::string baseline_words(const std::string& name, const MoeSettings& settings, const Collectives* collectives) {
  if (name == "naive") return "naive: the plain loops on one host thread";
  if (name == "separate") {
    return fmt::format(
        "separate: a local dispatch or combine of this rank's experts, and an all-reduce of the sums in "
        "{}, in separate launches",
        name_of(settings.computed()));
  }
  if (collectives == nullptr) return "";
  if (name == "allgather") {
    return fmt::format(
        "allgather: all-gather of tokens, ids and weights ({}), local dispatch and combine of this "
        "rank's experts, reduce-scatter of the sums in {}",
        collectives->name(), name_of(AllGather::type_of_sums(settings)));
  }
  if (name == "mpi") {
    return fmt::format(
        "mpi: rows packed for each rank, each token once, ids and weights behind each; counts by MPI_Alltoall, rows by "
        "MPI_Alltoallv, placed in expert order; parts of sums back the same way; over {}",
        collectives->name());
  }
  return fmt::format(
      "{}: rows packed for each rank, each token once, sent and received in one group ({}), placed in "
      "expert order; parts of sums back the same way",
      name, collectives->name());
}

std::unique_ptr<Rival> make_rival(const std::string& name, const MoeSettings& settings, const MoeSets& sets,
                                  const RivalTools& tools) {
  if (name == "separate") return std::make_unique<Separate>(settings, sets, tools.communicator, tools.stream);
  if (tools.collectives == nullptr) return nullptr;
  if (name == "allgather") {
    return std::make_unique<AllGather>(settings, sets, *tools.collectives, tools.stream, tools.team);
  }
  if (name == "mpi") return std::make_unique<AllToAll>(sets, *tools.collectives, tools.stream, tools.team);
  return std::make_unique<SendReceive>(sets, *tools.collectives, tools.stream);
}

}  // namespace moelink::perf
