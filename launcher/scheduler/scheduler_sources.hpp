#pragma once

#include "launcher/scheduler/scheduler.hpp"

#include <limits>

/// The schedulers that are known. For scheduler.cpp.
namespace dlaunch::launcher {

/// The environment as schedulers write it: an empty variable says nothing.
class Variables {
 public:
  explicit Variables(std::span<const std::string> environment) : environment_(environment) {}

  std::optional<std::string_view> find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name).has_value(); }
  std::string text(std::string_view name) const { return std::string(find(name).value_or("")); }
  /// A number that the place cannot do without: where it is missing or no number in the range, the
  /// place's refusal says so, and the least is returned.
  int number(SchedulerPlace& place, std::string_view name, int least,
             int most = std::numeric_limits<int>::max()) const;
  /// A number that the place can do without.
  std::optional<long> number_if(std::string_view name) const;
  bool has_prefix(std::string_view prefix) const;

 private:
  std::span<const std::string> environment_;
};

/// Reads the place that a scheduler tells; false where it did not start this process.
using ReadPlace = bool(SchedulerPlace& place, const Variables& variables,
                       const FileReader& read_file);
ReadPlace read_open_mpi, read_hydra, read_slurm, read_pytorch_job, read_jobset, read_kubernetes_job,
    read_pmix;

struct SchedulerRow {
  std::string_view name;
  ReadPlace* read;
};
/// In the order in which they are asked, from the inside outwards: mpirun in a Slurm job leaves
/// both kinds of variables.
constexpr SchedulerRow schedulers[] = {
    {"Open MPI", read_open_mpi}, {"MPICH hydra", read_hydra},
    {"Slurm", read_slurm},       {"Kubeflow PyTorchJob", read_pytorch_job},
    {"JobSet", read_jobset},     {"Kubernetes Indexed Job", read_kubernetes_job},
    {"PMIx", read_pmix},
};

/// The first node of the Slurm job around another starter (mpirun in a batch script).
Told first_of_slurm_job(const Variables& variables);

/// When the Slurm job around any starter ends.
Told deadline_of_slurm_job(const Variables& variables);

/// Refuses a process that was started more than once on its node. `starter` is "srun", `once` says
/// how to do it right.
void refuse_several(SchedulerPlace& place, std::string_view starter, int starts, int nodes,
                    std::string_view once);

}  // namespace dlaunch::launcher
