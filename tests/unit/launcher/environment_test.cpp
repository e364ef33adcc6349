#include "launcher/plan/environment.hpp"

#include "launcher/plan/plan.hpp"

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch::launcher;

namespace {

using Strings = std::vector<std::string>;

Machine machine(int cores = 8, int gpus = 0) {
  return {.hostname = "host", .usable_cores = cores, .cores_reason = "", .gpus = gpus};
}

Assignment four_workers() {
  Assignment assignment;
  assignment.job = "job-7";
  assignment.epoch = 2;
  assignment.attempt = 1;
  assignment.local_size = assignment.world_size = 4;
  assignment.master_port = 29501;
  assignment.control_fd = 5;
  assignment.control_socket = "@dlaunch-job-7";
  return assignment;
}

/// Both parts, sorted.
Strings whole(const JobSpec& options, const Machine& host, const Strings& inherited,
              const Assignment& assignment, int local_rank, std::string_view error_file = {}) {
  auto all = common_environment(options, host, inherited, assignment);
  const auto own = worker_environment(options, host, inherited, assignment, local_rank, error_file);
  all.insert(all.end(), own.begin(), own.end());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("the whole environment of a worker") {
  JobSpec options;
  options.max_restarts = 3;
  options.role = "trainer";
  options.signals = {SIGTERM, SIGUSR1};
  const Strings inherited = {"PATH=/bin", "HOME=/root", "LANG=C"};
  CHECK(whole(options, machine(), inherited, four_workers(), 2, "/log/2/error.json") ==
        Strings{
            "DLAUNCH_WORKER_AGENT=@dlaunch-job-7",
            "DLAUNCH_WORKER_CONTROL=5",
            "DLAUNCH_WORKER_EPOCH=2",
            "DLAUNCH_WORKER_JOB=job-7",
            "DLAUNCH_WORKER_LOCAL_RANK=2",
            "GROUP_RANK=0",
            "GROUP_WORLD_SIZE=1",
            "HOME=/root",
            "LANG=C",
            "LOCAL_RANK=2",
            "LOCAL_WORLD_SIZE=4",
            "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=29501",
            "NODE_RANK=0",
            "OMP_NUM_THREADS=2",
            "PATH=/bin",
            "RANK=2",
            "ROLE_NAME=trainer",
            "ROLE_RANK=2",
            "ROLE_WORLD_SIZE=4",
            "TORCHELASTIC_ERROR_FILE=/log/2/error.json",
            "TORCHELASTIC_MAX_RESTARTS=3",
            "TORCHELASTIC_RESTART_COUNT=1",
            "TORCHELASTIC_RUN_ID=job-7",
            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGUSR1",
            "TORCHELASTIC_USE_AGENT_STORE=True",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
            "WORLD_SIZE=4",
        });
}

TEST_CASE("a node that is not the first one: global ranks go on, local ones begin anew") {
  auto assignment = four_workers();
  assignment.node_rank = 2;
  assignment.node_count = 3;
  assignment.first_rank = 8;
  assignment.world_size = 12;
  const auto all = whole({}, machine(), {}, assignment, 1);
  for (const auto line :
       {"RANK=9", "LOCAL_RANK=1", "ROLE_RANK=9", "WORLD_SIZE=12", "LOCAL_WORLD_SIZE=4",
        "GROUP_RANK=2", "NODE_RANK=2", "GROUP_WORLD_SIZE=3"}) {
    CAPTURE(line);
    CHECK(std::find(all.begin(), all.end(), line) != all.end());
  }
}

TEST_CASE("workers are told when the job is to end, where that is known") {
  auto assignment = four_workers();
  CHECK_FALSE(lookup(whole({}, machine(), {"DLAUNCH_WORKER_DEADLINE=7"}, assignment, 1),
                     "DLAUNCH_WORKER_DEADLINE"));
  assignment.deadline = 1795442400;
  CHECK(lookup(whole({}, machine(), {}, assignment, 1), "DLAUNCH_WORKER_DEADLINE") == "1795442400");
}

TEST_CASE("a world of one hosts its own store, and its threads are its own affair") {
  auto assignment = four_workers();
  assignment.local_size = assignment.world_size = 1;
  assignment.agent_store = false;
  const auto all = whole({}, machine(), {}, assignment, 0);
  CHECK(lookup(all, "TORCHELASTIC_USE_AGENT_STORE") == "False");
  CHECK_FALSE(lookup(all, "OMP_NUM_THREADS"));
  CHECK_FALSE(lookup(all, "TORCHELASTIC_ERROR_FILE"));
}

TEST_CASE("OMP_NUM_THREADS: cores by workers, at least one, and only where it is unset") {
  const auto threads = [](int cores, const Strings& inherited) {
    const auto all = common_environment({}, machine(cores), inherited, four_workers());
    return std::string(lookup(all, "OMP_NUM_THREADS").value_or("none"));
  };
  CHECK(threads(8, {}) == "2");
  CHECK(threads(7, {}) == "1");
  CHECK(threads(2, {}) == "1");
  CHECK(threads(64, {"OMP_NUM_THREADS=3"}) == "3");
}

TEST_CASE("what an outer launcher left is overridden, and flags are not handed on") {
  const Strings inherited = {"RANK=77",
                             "WORLD_SIZE=99",
                             "MASTER_ADDR=elsewhere",
                             "TORCHELASTIC_ERROR_FILE=/outer/error.json",
                             "DLAUNCH_WORKER_CONTROL=99",
                             "DLAUNCH_WORKER_SOMETHING_NEWER=1",
                             "PET_NNODES=1",
                             "DLAUNCH_NPROC_PER_NODE=4",
                             "PET_UNKNOWN=kept",
                             "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
                             "odd line",
                             "RANKING=kept",
                             "EMPTY="};
  const auto all = whole({}, machine(), inherited, four_workers(), 0);
  CHECK(std::count_if(all.begin(), all.end(),
                      [](const auto& line) { return line.starts_with("RANK="); }) == 1);
  CHECK(lookup(all, "RANK") == "0");
  CHECK(lookup(all, "WORLD_SIZE") == "4");
  CHECK(lookup(all, "MASTER_ADDR") == "127.0.0.1");
  CHECK(lookup(all, "DLAUNCH_WORKER_CONTROL") == "5");
  CHECK_FALSE(lookup(all, "TORCHELASTIC_ERROR_FILE"));
  CHECK_FALSE(lookup(all, "DLAUNCH_WORKER_SOMETHING_NEWER"));
  CHECK_FALSE(lookup(all, "PET_NNODES"));
  CHECK_FALSE(lookup(all, "DLAUNCH_NPROC_PER_NODE"));
  CHECK(lookup(all, "PET_UNKNOWN") == "kept");
  CHECK(lookup(all, "RANKING") == "kept");
  CHECK(lookup(all, "EMPTY") == "");
  CHECK(lookup(all, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
}

TEST_CASE("no name stands in both parts, nor twice in one") {
  JobSpec options;
  options.virtual_local_rank = true;
  const Strings inherited = {"CUDA_VISIBLE_DEVICES=0,1,2,3", "LOCAL_RANK=9"};
  const auto all = whole(options, machine(8, 4), inherited, four_workers(), 3, "/e");
  std::vector<std::string> names;
  for (const auto& line : all) names.push_back(line.substr(0, line.find('=')));
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("--virtual-local-rank: LOCAL_RANK 0, one GPU each") {
  JobSpec options;
  options.virtual_local_rank = true;
  auto all = whole(options, machine(8, 4), {"CUDA_VISIBLE_DEVICES=3,2,1,0"}, four_workers(), 1);
  CHECK(lookup(all, "LOCAL_RANK") == "0");
  CHECK(lookup(all, "DLAUNCH_WORKER_LOCAL_RANK") == "1");
  CHECK(lookup(all, "RANK") == "1");
  CHECK(lookup(all, "CUDA_VISIBLE_DEVICES") == "2");
  all = whole(options, machine(8, 4), {}, four_workers(), 2);
  CHECK(lookup(all, "CUDA_VISIBLE_DEVICES") == "2");
  all = whole(options, machine(8, 0), {"CUDA_VISIBLE_DEVICES=0"}, four_workers(), 2);
  CHECK(lookup(all, "CUDA_VISIBLE_DEVICES") == "0");
}

TEST_CASE("CUDA_VISIBLE_DEVICES as CUDA reads it: up to the first device there is not") {
  const auto count = [](const char* value) {
    const Strings environment = {std::string("CUDA_VISIBLE_DEVICES=") + value};
    return visible_gpus(machine(8, 4), environment).size();
  };
  CHECK(visible_gpus(machine(8, 4), {}).size() == 4);
  CHECK(count("") == 0);
  CHECK(count("-1") == 0);
  CHECK(count("1, 3") == 2);
  CHECK(count("0,9,1") == 1);
  CHECK(count("0,-1,1") == 1);
  CHECK(count("GPU-8932f937,MIG-GPU-1/2/3") == 2);
  CHECK(count("NoDevFiles") == 0);
  CHECK(count("0,,1") == 1);
  // CUDA shows none where one is named twice.
  CHECK(count("0,0") == 0);
  CHECK(count("0,1, 0") == 0);
  CHECK(count("0,-1,0") == 1);
  CHECK(count("GPU-8932f937,GPU-8932f937") == 0);
  CHECK(visible_gpus(machine(8, 0), {}).empty());
}

TEST_CASE("MPI's ranks are dlaunch's, and nothing is left of an outer mpiexec's") {
  const Strings inherited = {"PATH=/bin",
                             "PMI_FD=9",
                             "PMI_RANK=7",
                             "MPI_LOCALNRANKS=1",
                             "OMPI_COMM_WORLD_RANK=7",
                             "PMIX_NAMESPACE=outer",
                             "OMPI_MCA_btl=tcp"};
  const auto has = [&](const Assignment& assignment, std::string_view line) {
    const Strings all = whole({}, machine(), inherited, assignment, 2);
    return std::ranges::find(all, line) != all.end();
  };
  Assignment none = four_workers(), pmi = four_workers(), both = four_workers();
  pmi.pmi_fd = both.pmi_fd = 6;
  both.pmix = true;
  for (const char* line : {"PMI_FD=6", "PMI_RANK=2", "PMI_SIZE=4", "OMPI_MCA_btl=tcp"}) {
    CHECK_MESSAGE(has(pmi, line), line);
    CHECK_MESSAGE(has(both, line), line);
  }
  for (const char* line : {"PMI_FD=9", "PMI_RANK=7", "MPI_LOCALNRANKS=1", "OMPI_COMM_WORLD_RANK=7",
                           "PMIX_NAMESPACE=outer"}) {
    CHECK_MESSAGE(has(none, line), line);
    CHECK_FALSE_MESSAGE(has(pmi, line), line);
    CHECK_FALSE_MESSAGE(has(both, line), line);
  }
  // MPICH wants to be told which of two to take.
  CHECK(has(both, "MPIR_CVAR_PMI_VERSION=1"));
  CHECK_FALSE(has(pmi, "MPIR_CVAR_PMI_VERSION=1"));
}
