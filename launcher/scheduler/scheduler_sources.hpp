#pragma once

#include "launcher/scheduler/scheduler.hpp"

#include <limits>

/// One function per family of schedulers: the place they tell, or nothing where they did not start
/// this process. For scheduler.cpp.
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
  /// A number that is merely useful.
  std::optional<long> number_if(std::string_view name) const;
  bool has_prefix(std::string_view prefix) const;

 private:
  std::span<const std::string> environment_;
};

std::optional<SchedulerPlace> slurm_place(const Variables& variables);
/// The first node of the Slurm job around another starter (mpirun in a batch script).
Told first_of_slurm_job(const Variables& variables);

std::optional<SchedulerPlace> open_mpi_place(const Variables& variables);
std::optional<SchedulerPlace> hydra_place(const Variables& variables);
std::optional<SchedulerPlace> pmix_place(const Variables& variables);

std::optional<SchedulerPlace> pytorch_job_place(const Variables& variables);
/// The place in a JobSet, or in an Indexed Job by itself.
std::optional<SchedulerPlace> kubernetes_place(const Variables& variables,
                                               const FileReader& read_file);

/// Refuses what was started more than once on a node. `starter` is "srun", `once` how to do it.
void refuse_several(SchedulerPlace& place, std::string_view starter, int starts, int nodes,
                    std::string_view once);

}  // namespace dlaunch::launcher
