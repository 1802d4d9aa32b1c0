#include "comm/launcher.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Reads variables, and knows how to complain about them.
class Variables {
 public:
  explicit Variables(const Environment::Lookup& lookup) : lookup_(lookup) {}

  [[nodiscard]] std::string word(const char* name) const { return lookup_(name).value_or(""); }

  /// Several words in one, so that all of them must be equal; empty if all are.
  [[nodiscard]] std::string words(std::initializer_list<const char*> names) const {
    std::string all;
    for (const char* name : names) {
      const std::string value = word(name);
      all += value.empty() ? "" : text(all.empty() ? "" : "/", value);
    }
    return all;
  }

  [[nodiscard]] std::optional<int> number(const char* name, int smallest, int largest) const {
    const std::string value = word(name);
    if (value.empty()) {
      return std::nullopt;
    }
    int number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || stop != end || number < smallest || number > largest) {
      throw Error(ErrorCode::invalid_argument,
                  text(name, "=", value, " is not a number from ", smallest, " to ", largest));
    }
    return number;
  }

 private:
  const Environment::Lookup& lookup_;
};

constexpr int kMaxRanks = 1 << 16;

/// The names under which one launcher says the same things.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr std::array kLaunchers = {
    Names{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    Names{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Names{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // SLURM_NTASKS also stands in batch scripts, where nobody has started the other tasks; this one only inside a step.
    Names{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    // PMIx has no variable for the size; WORLD_SIZE is for the user to set.
    Names{"PMIx", "PMIX_RANK", "WORLD_SIZE", "", ""},
};

std::string job_of(const Variables& variables, std::string_view launcher) {
  if (launcher == "torchrun") {
    return variables.words({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"});
  }
  if (launcher == "Slurm") {
    return variables.words({"SLURM_JOB_ID", "SLURM_STEP_ID"});
  }
  if (launcher == "Open MPI") {
    // Version 4 names the job by number and by its mpirun, version 5 by PMIx.
    const std::string job = variables.words({"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"});
    return job.empty() ? variables.word("PMIX_NAMESPACE") : job;
  }
  return variables.words({"PMIX_NAMESPACE", "PMI_JOBID"});
}

/// torchrun's agent keeps a store of its own at MASTER_PORT for as long as the job runs.
int port_of(const Variables& variables) {
  const int port = variables.number("MASTER_PORT", 1, 65534).value_or(0);
  return port > 0 && variables.word("TORCHELASTIC_USE_AGENT_STORE") == "True" ? port + 1 : port;
}

Launch describe(const Variables& variables, const Names& names, int rank, int size) {
  Launch launch{.launcher = names.launcher,
                .rank = rank,
                .size = size,
                .local_rank = variables.number(names.local_rank, 0, kMaxRanks - 1),
                .local_size = variables.number(names.local_size, 1, kMaxRanks),
                .job = job_of(variables, names.launcher),
                .address = variables.word("MASTER_ADDR"),
                .port = port_of(variables)};
  if (launch.launcher == "Slurm") {
    if (variables.word("SLURM_STEP_NUM_NODES") == "1") {
      launch.local_size = size;
    } else if (launch.address.empty()) {
      launch.address = first_host(variables.word("SLURM_STEP_NODELIST"));
    }
  }
  if (rank >= size) {
    throw Error(ErrorCode::invalid_argument, text(names.rank, "=", rank, " is not below ", names.size, "=", size));
  }
  return launch;
}

}  // namespace

std::optional<Launch> Launch::read(const Environment::Lookup& lookup) {
  const Variables variables(lookup);
  for (const Names& names : kLaunchers) {
    // RANK alone is a common word, not a launcher: both must be there before either is judged.
    if (variables.word(names.rank).empty() || variables.word(names.size).empty()) {
      continue;
    }
    const int size = *variables.number(names.size, 1, kMaxRanks);
    return describe(variables, names, *variables.number(names.rank, 0, kMaxRanks - 1), size);
  }
  if (!variables.word("PMIX_RANK").empty()) {
    throw Error(ErrorCode::invalid_argument,
                "PMIX_RANK is set, but nothing says how many ranks there are; set WORLD_SIZE");
  }
  return std::nullopt;
}

std::string first_host(const std::string& node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  std::string host = node_list.substr(0, end);
  if (end != std::string::npos && node_list[end] == '[') {
    const std::size_t stop = node_list.find_first_of(",-]", end + 1);
    host += node_list.substr(end + 1, stop == std::string::npos ? stop : stop - end - 1);
  }
  return host;
}

}  // namespace moelink
