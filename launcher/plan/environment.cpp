#include "launcher/plan/environment.hpp"

#include "launcher/plan/plan.hpp"
#include "launcher/request/option_table.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cctype>

namespace dlaunch::launcher {

namespace {

std::string_view name_of(std::string_view line) { return line.substr(0, line.find('=')); }

/// The GPU that is this worker's alone with --virtual-local-rank; empty where there is none.
std::string own_gpu(const JobSpec& spec, const Machine& machine,
                    std::span<const std::string> inherited, int local_rank) {
  if (!spec.virtual_local_rank) return {};
  const auto gpus = visible_gpus(machine, inherited);
  const auto index = static_cast<std::size_t>(local_rank);
  return index < gpus.size() ? gpus[index] : std::string{};
}

void set(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  std::string line;
  line.reserve(name.size() + 1 + value.size());
  line.append(name).append("=").append(value);
  environment.push_back(std::move(line));
}

void set(std::vector<std::string>& environment, std::string_view name, long value) {
  set(environment, name, std::to_string(value));
}

bool device_exists(const std::string& device, int gpus) {
  const bool number = !device.empty() && std::all_of(device.begin(), device.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  if (!number) return device.starts_with("GPU-") || device.starts_with("MIG-");
  const auto read = read_integer(device, 0, gpus - 1);
  return std::holds_alternative<long>(read);
}

/// Replaces every occurrence of the variable.
void replace(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  std::erase_if(environment, [&](const auto& line) { return name_of(line) == name; });
  set(environment, name, value);
}

}  // namespace

std::vector<std::string> inherited_by(const Part& part, std::span<const std::string> environment) {
  std::vector<std::string> result(environment.begin(), environment.end());
  if (!part.directory.empty()) replace(result, "PWD", part.directory);
  for (const auto& [name, value] : part.variables) {
    if (value) replace(result, name, *value);
  }
  return result;
}

void append_colour_variables(std::vector<std::string>& own,
                             std::span<const std::string> inherited) {
  if (!wants_colours(inherited)) return;
  if (lookup(inherited, "FORCE_COLOR") || lookup(inherited, "CLICOLOR_FORCE")) return;
  set(own, "FORCE_COLOR", 1);
  set(own, "CLICOLOR_FORCE", 1);
}

bool wants_colours(std::span<const std::string> environment) {
  return lookup(environment, "NO_COLOR").value_or("").empty() &&
         lookup(environment, "CLICOLOR") != "0" && lookup(environment, "FORCE_COLOR") != "0";
}

bool terminal_redraws(std::span<const std::string> environment) {
  return lookup(environment, "TERM") != "dumb";
}

std::vector<std::string> visible_gpus(const Machine& machine,
                                      std::span<const std::string> environment) {
  std::vector<std::string> gpus;
  if (machine.gpus == 0) return gpus;
  const auto listed = lookup(environment, "CUDA_VISIBLE_DEVICES");
  if (!listed) {
    for (int gpu = 0; gpu < machine.gpus; ++gpu) gpus.push_back(std::to_string(gpu));
    return gpus;
  }
  for (const auto part : split(*listed, ',')) {
    const auto first = part.find_first_not_of(' ');
    if (first == std::string_view::npos) break;
    const std::string device(part.substr(first, part.find_last_not_of(' ') + 1 - first));
    if (std::find(gpus.begin(), gpus.end(), device) != gpus.end()) return {};
    if (!device_exists(device, machine.gpus)) break;
    gpus.push_back(device);
  }
  return gpus;
}

std::vector<std::string> common_environment(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> inherited,
                                            const Assignment& assignment) {
  std::vector<std::string> result;
  constexpr std::size_t set_here = 32;
  result.reserve(inherited.size() + set_here);
  const bool offers_mpi = assignment.pmi_fd >= 0 || assignment.pmix;
  const bool one_gpu_each = !own_gpu(spec, machine, inherited, 0).empty();
  for (const auto& line : inherited) {
    const auto name = name_of(line);
    if (is_worker_variable(name) || option_of_variable(name) != nullptr) continue;
    if (offers_mpi && is_mpi_variable(name)) continue;
    if (one_gpu_each && name == "CUDA_VISIBLE_DEVICES") continue;
    result.push_back(line);
  }
  set(result, "WORLD_SIZE", assignment.world_size);
  set(result, "LOCAL_WORLD_SIZE", assignment.local_size);
  set(result, "GROUP_RANK", assignment.node_rank);
  set(result, "GROUP_WORLD_SIZE", assignment.node_count);
  set(result, "NODE_RANK", assignment.node_rank);
  set(result, "ROLE_NAME", spec.role);
  set(result, "ROLE_WORLD_SIZE", assignment.world_size);
  set(result, "MASTER_ADDR", assignment.master_addr);
  set(result, "MASTER_PORT", assignment.master_port);
  set(result, "TORCHELASTIC_RESTART_COUNT", assignment.attempt);
  set(result, "TORCHELASTIC_MAX_RESTARTS", spec.max_restarts);
  set(result, "TORCHELASTIC_RUN_ID", assignment.job);
  std::string signals;
  for (const int number : spec.signals) {
    signals += (signals.empty() ? "" : ",") + signal_name(number);
  }
  set(result, "TORCHELASTIC_SIGNALS_TO_HANDLE", signals);
  // True tells PyTorch that someone else hosts the store, and that every rank is a client of it.
  set(result, "TORCHELASTIC_USE_AGENT_STORE", assignment.agent_store ? "True" : "False");
  set(result, "DLAUNCH_WORKER_CONTROL", assignment.control_fd);
  set(result, "DLAUNCH_WORKER_AGENT", assignment.control_socket);
  set(result, "DLAUNCH_WORKER_JOB", assignment.job);
  set(result, "DLAUNCH_WORKER_EPOCH", std::to_string(assignment.epoch));
  if (assignment.deadline > 0) set(result, "DLAUNCH_WORKER_DEADLINE", assignment.deadline);
  if (!assignment.notify_pipe.empty()) {
    set(result, "DLAUNCH_WORKER_NOTIFY", assignment.notify_pipe);
  }
  if (assignment.pmi_fd >= 0) {
    set(result, "PMI_FD", assignment.pmi_fd);
    set(result, "PMI_SIZE", assignment.world_size);
    set(result, "PMI_SPAWNED", 0);
    // MPICH from 4.3 on gives up if it is offered both and is not told which to take.
    if (assignment.pmix && !lookup(inherited, "MPIR_CVAR_PMI_VERSION")) {
      set(result, "MPIR_CVAR_PMI_VERSION", 1);
    }
  }
  // Open MPI 4 believes that no launcher has started it unless it sees one that it knows; this
  // names the one that speaks PMIx alone. Open MPI 5 does not look.
  if (assignment.pmix) set(result, "JSM_JSRUN_PORT", 0);
  // These two are suggestions: a value that the user has set wins.
  if (!lookup(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    set(result, "TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
  }
  if (assignment.local_size > 1 && !lookup(inherited, "OMP_NUM_THREADS")) {
    set(result, "OMP_NUM_THREADS", std::max(1, machine.usable_cores / assignment.local_size));
  }
  return result;
}

std::vector<std::string> worker_environment(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> inherited,
                                            const Assignment& assignment, int local_rank,
                                            std::string_view error_file) {
  std::vector<std::string> result;
  const int rank = assignment.first_rank + local_rank;
  set(result, "RANK", rank);
  set(result, "LOCAL_RANK", spec.virtual_local_rank ? 0 : local_rank);
  set(result, "DLAUNCH_WORKER_LOCAL_RANK", local_rank);
  set(result, "ROLE_RANK", rank);
  if (assignment.pmi_fd >= 0) set(result, "PMI_RANK", rank);
  if (!error_file.empty()) set(result, "TORCHELASTIC_ERROR_FILE", error_file);
  const auto gpu = own_gpu(spec, machine, inherited, local_rank);
  if (!gpu.empty()) set(result, "CUDA_VISIBLE_DEVICES", gpu);
  return result;
}

}  // namespace dlaunch::launcher
