#include "perf/all_reduce/settings.hpp"

#include <CLI/CLI.hpp>

namespace moelink::perf {
namespace {

AllReduceAlgorithm algorithm_of_name(const std::string& name) {
  for (const auto known :
       {AllReduceAlgorithm::automatic, AllReduceAlgorithm::push, AllReduceAlgorithm::pack, AllReduceAlgorithm::stream,
        AllReduceAlgorithm::two_shot, AllReduceAlgorithm::nvls, AllReduceAlgorithm::nccl}) {
    if (name == name_of(known)) return known;
  }
  return AllReduceAlgorithm::automatic;
}

}  // namespace

void AllReduceFlags::add_to(CLI::App& app) {
  measure.cache = "warm";  // one call's data lies where the last one's did, as in an engine's layers
  add_sweep_flags(app, sizes, "--sizes", "message, in bytes (K, M, G)", "4K", "16M");
  add_measure_flags(app, measure);
  add_place_flags(app, place, {"node"});
  add_rank_flags(app, ranks);
  add_output_flags(app, output);
  app.add_option("-d,--datatype", type, "type of the elements")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}))
      ->capture_default_str()
      ->group("Shape");
  app.add_option("--algorithm", algorithm, "how to sum; each: push, pack, stream and two_shot on every size")
      ->check(CLI::IsMember({"automatic", "each", "push", "pack", "stream", "two_shot", "nvls", "nccl"}))
      ->capture_default_str()
      ->group("Shape");
  app.add_flag("--in-place", in_place, "sum into the input")->group("Shape");
  add_baseline_flag(app, baseline, {"nccl"});
}

DataType AllReduceFlags::data_type() const {
  return type == "bf16" ? DataType::bfloat16 : type == "fp16" ? DataType::float16 : DataType::float32;
}

std::vector<AllReduceAlgorithm> AllReduceFlags::algorithms() const {
  std::vector<AllReduceAlgorithm> list;
  if (algorithm == "each") {
    list = {AllReduceAlgorithm::push, AllReduceAlgorithm::pack, AllReduceAlgorithm::stream,
            AllReduceAlgorithm::two_shot};
  } else {
    list = {algorithm_of_name(algorithm)};
  }
  if (baseline == "nccl") list.push_back(AllReduceAlgorithm::nccl);
  return list;
}

}  // namespace moelink::perf
