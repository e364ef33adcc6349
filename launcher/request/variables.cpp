#include "launcher/request/variables.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::launcher {

namespace {

/// Every variable set for workers, beside DLAUNCH_WORKER_...; what an outer launcher left under
/// these names is dropped.
constexpr auto worker_variables = std::to_array<std::string_view>({
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "NODE_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
});

/// What mpiexec, mpirun or srun left: their ranks are not those of our workers.
constexpr auto mpi_variables = std::to_array<std::string_view>({
    "PMI_",
    "PMI2_",
    "PMIX_",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "HYDRA_",
    "JSM_",
    "HYDI_",
    "OMPI_APP_CTX_",
    "OMPI_COMMAND",
    "OMPI_COMM_WORLD_",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix",
    "OMPI_NUM_APP_CTX",
    "OMPI_UNIVERSE_SIZE",
    "PRTE_",
});

}  // namespace

std::optional<std::string_view> lookup(std::span<const std::string> environment,
                                       std::string_view name) {
  for (const std::string_view line : environment) {
    if (line.size() > name.size() && line[name.size()] == '=' && line.starts_with(name)) {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

bool is_worker_variable(std::string_view name) {
  return name.starts_with("DLAUNCH_WORKER_") ||
         std::find(worker_variables.begin(), worker_variables.end(), name) !=
             worker_variables.end();
}

bool is_mpi_variable(std::string_view name) {
  return std::ranges::any_of(mpi_variables,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace dlaunch::launcher
