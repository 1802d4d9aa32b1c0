// What the program that started this process says about the group: torchrun, mpirun, srun.
#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace moelink {

struct Launch {
  std::string launcher;  ///< "torchrun", for errors
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< among the ranks of this machine
  std::optional<int> local_size;  ///< ranks of this machine
  std::string job;                ///< equal on the ranks of one job and on no others; empty: not known
  std::string address;            ///< where rank 0 is; empty: not known
  int port = 0;                   ///< 0: not known

  /// The first of these whose rank and size are both there: torchrun (RANK, WORLD_SIZE), Open MPI
  /// (OMPI_COMM_WORLD_RANK), MPICH and Intel MPI (PMI_RANK), Slurm (SLURM_PROCID, inside a step), PMIx (PMIX_RANK).
  /// Nothing if there is none. Throws ErrorCode::invalid_argument, naming variable and value, when one is no number or
  /// does not fit the others.
  [[nodiscard]] static std::optional<Launch> read(const Environment::Lookup& lookup);
};

/// The first host of a Slurm node list: "n[07-09,12],m1" -> "n07".
[[nodiscard]] std::string first_host(const std::string& node_list);

}  // namespace moelink
