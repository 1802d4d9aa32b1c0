#include "comm/launcher.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "comm/expect_error.hpp"

namespace moelink {
namespace {

using testing::expect_error;
using Variables = std::map<std::string, std::string>;

std::optional<Launch> read(const Variables& variables) {
  return Launch::read([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  });
}

TEST(Launcher, NothingMeansNoGroup) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"RANK", "3"}})) << "RANK alone is a common word, not a launcher";
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}))
      << "in a batch script, outside a step, nobody has started the other tasks";
}

TEST(Launcher, Torchrun) {
  const auto launch = read({{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "torchrun");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 4);
  EXPECT_EQ(launch->address, "10.0.0.1");
  EXPECT_EQ(launch->port, 29500);
}

TEST(Launcher, TorchrunsOwnStoreKeepsItsPort) {
  const auto launch = read({{"RANK", "0"},
                            {"WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "h"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(launch->port, 29501);
}

TEST(Launcher, RestartedJobIsAnotherJob) {
  Variables variables = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_RESTART_COUNT", "0"}};
  const std::string before = read(variables)->job;
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(read(variables)->job, before);
}

TEST(Launcher, OpenMpi) {
  const auto launch = read({{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"OMPI_MCA_ess_base_jobid", "77"},
                            {"PMIX_RANK", "1"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "Open MPI");
  EXPECT_EQ(launch->rank, 1);
  EXPECT_EQ(launch->local_size, launch->size);
  EXPECT_EQ(launch->job, "77");
  EXPECT_EQ(launch->address, "");
}

TEST(Launcher, OpenMpi5NamesItsJobByPmix) {
  const auto launch =
      read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "prterun-h-1@1"}});
  EXPECT_EQ(launch->job, "prterun-h-1@1");
}

TEST(Launcher, SlurmStepOverNodesMeetsAtItsFirstHost) {
  const auto launch = read({{"SLURM_PROCID", "9"},
                            {"SLURM_STEP_NUM_TASKS", "16"},
                            {"SLURM_STEP_NUM_NODES", "2"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_JOB_ID", "123"},
                            {"SLURM_STEP_ID", "4"},
                            {"SLURM_STEP_NODELIST", "gpu[07-08]"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "Slurm");
  EXPECT_EQ(launch->rank, 9);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_FALSE(launch->local_size);
  EXPECT_EQ(launch->job, "123/4");
  EXPECT_EQ(launch->address, "gpu07");
}

TEST(Launcher, SlurmStepOnOneNodeNeedsNoAddress) {
  const auto launch = read({{"SLURM_PROCID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_STEP_NUM_NODES", "1"},
                            {"SLURM_STEP_NODELIST", "gpu07"}});
  EXPECT_EQ(launch->local_size, 4);
  EXPECT_EQ(launch->address, "");
}

TEST(Launcher, Mpich) {
  const auto launch = read({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "MPICH");
  EXPECT_EQ(launch->local_rank, 2);
}

TEST(Launcher, PmixNeedsASize) {
  expect_error(ErrorCode::invalid_argument, {"PMIX_RANK", "WORLD_SIZE"}, [] { (void)read({{"PMIX_RANK", "1"}}); });
  const auto launch = read({{"PMIX_RANK", "1"}, {"WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "n"}});
  EXPECT_EQ(launch->launcher, "PMIx");
  EXPECT_EQ(launch->rank, 1);
}

TEST(Launcher, NumbersThatAreNoneAreNamed) {
  expect_error(ErrorCode::invalid_argument, {"RANK=two"}, [] { (void)read({{"RANK", "two"}, {"WORLD_SIZE", "4"}}); });
  expect_error(ErrorCode::invalid_argument, {"WORLD_SIZE=0"}, [] { (void)read({{"RANK", "0"}, {"WORLD_SIZE", "0"}}); });
  expect_error(ErrorCode::invalid_argument, {"RANK=4", "WORLD_SIZE=4"}, [] {
    (void)read({{"RANK", "4"}, {"WORLD_SIZE", "4"}});
  });
  expect_error(ErrorCode::invalid_argument, {"MASTER_PORT=99999"}, [] {
    (void)read({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "99999"}});
  });
}

TEST(Launcher, FirstHostOfNodeLists) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[07-09,12],m1"), "n07");
  EXPECT_EQ(first_host("n[3,5]"), "n3");
  EXPECT_EQ(first_host("n["), "n");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace moelink
