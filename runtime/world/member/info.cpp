#include "runtime/world/member/info.hpp"

#include "runtime/base/phrases.hpp"

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace dlaunch {
namespace {

/// The names under which a launcher tells a process its place; empty where it does not.
struct Names {
  const char* who;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names torch_names{"", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names open_mpi_names{"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names pmi_names{"mpirun (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                          "MPI_LOCALNRANKS"};
constexpr Names slurm_names{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};
constexpr const char* slurm_job_size = "SLURM_NTASKS";
/// LOCAL_RANK is 0 for all with dlaunch's --virtual-local-rank.
constexpr const char* true_local_rank = "DLAUNCH_WORKER_LOCAL_RANK";

const Names& names_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::open_mpi:
      return open_mpi_names;
    case Launcher::pmi:
      return pmi_names;
    case Launcher::slurm:
      return slurm_names;
    case Launcher::dlaunch:
    case Launcher::variables:
    case Launcher::none:
      return torch_names;
  }
  return torch_names;
}

/// An empty variable says nothing, as an absent one.
std::optional<std::string> value_of(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> number_of(const Environment& environment, const std::string& name, int low,
                             int high) {
  const auto text = value_of(environment, name);
  if (!text) return std::nullopt;
  return static_cast<int>(parse_number(name, *text, low, high));
}

Error missing_error(const std::vector<std::string>& missing, const std::string& why) {
  return Error(Errc::misuse, listed(missing, missing.size()) +
                                 (missing.size() == 1 ? " is" : " are") +
                                 " missing from the environment: " + why);
}

/// All missing variables, in one sentence.
void require_variables(const Environment& environment, Launcher launcher, const Asked& asked,
                       const std::string& size_name) {
  const Names& names = names_of(launcher);
  const auto absent = [&](const std::string& name) { return !value_of(environment, name); };
  std::vector<std::string> place, master;
  if (asked.rank < 0 && absent(names.rank)) place.push_back(names.rank);
  if (asked.size < 0 && absent(size_name)) place.push_back(size_name);
  const bool alone = asked.size == 1 || value_of(environment, size_name) == "1";
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (asked.master && !alone && absent(name)) master.push_back(name);
  }
  if (!place.empty()) {
    place.insert(place.end(), master.begin(), master.end());
    throw missing_error(place,
                        "every process needs a rank of its own (0 to size-1), the world size, and "
                        "where rank 0 listens");
  }
  if (master.empty()) return;
  if (&names == &torch_names) {
    throw missing_error(master, "where rank 0 listens has to be said, the same on every rank");
  }
  throw missing_error(master, std::string(names.who) + " told this process its rank (" +
                                  names.rank + ") and the world size (" + size_name +
                                  "), but not where rank 0 is; set both for all ranks, or start "
                                  "the program with dlaunch");
}

/// Whether the environment speaks of this rank, and not of another world that its process is in.
bool is_of(const WorldInfo& info, const Environment& environment, const Names& names,
           const std::string& size_name) {
  return value_of(environment, names.rank).value_or(std::to_string(info.rank)) ==
             std::to_string(info.rank) &&
         value_of(environment, size_name).value_or(std::to_string(info.size)) ==
             std::to_string(info.size);
}

/// The place within the node, as far as the environment says; true if it says all of it.
bool read_node(const Environment& environment, Launcher launcher, WorldInfo& info) {
  const Names& names = names_of(launcher);
  const auto local_size = number_of(environment, names.local_size, 1, info.size);
  const int local_max = local_size.value_or(info.size) - 1;
  std::optional<int> local_rank;
  if (launcher == Launcher::dlaunch) {
    local_rank = number_of(environment, true_local_rank, 0, local_max);
  }
  if (!local_rank) local_rank = number_of(environment, names.local_rank, 0, local_max);
  info.local_size = local_size.value_or(1);
  info.local_rank = local_rank.value_or(0);
  std::optional<int> node_rank, node_count;
  if (&names == &torch_names) {
    node_count = number_of(environment, "GROUP_WORLD_SIZE", 1, info.size);
    const int node_max = node_count.value_or(info.size) - 1;
    node_rank = number_of(environment, "GROUP_RANK", 0, node_max);
    if (!node_rank) node_rank = number_of(environment, "NODE_RANK", 0, node_max);
  } else if (launcher == Launcher::slurm) {
    node_count = number_of(environment, "SLURM_STEP_NUM_NODES", 1, info.size);
    node_rank = number_of(environment, "SLURM_NODEID", 0, node_count.value_or(info.size) - 1);
  }
  info.node_count = node_count.value_or(1);
  info.node_rank = node_rank.value_or(0);
  return local_size && local_rank && node_rank && node_count;
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Launcher launcher_of(const Environment& environment) {
  const auto says = [&](const char* name) { return value_of(environment, name).has_value(); };
  if (says("DLAUNCH_WORKER_CONTROL") || says("DLAUNCH_WORKER_AGENT")) return Launcher::dlaunch;
  if (says(torch_names.rank)) return Launcher::variables;
  if (says(open_mpi_names.rank)) return Launcher::open_mpi;
  if (says(pmi_names.rank)) return Launcher::pmi;
  if (says(slurm_names.rank)) return Launcher::slurm;
  return Launcher::none;
}

WorldPlace place_from(const Environment& environment, Launcher launcher, const Asked& asked) {
  const Names& names = names_of(launcher);
  std::string size_name = names.size;
  if (launcher == Launcher::slurm && !value_of(environment, size_name)) size_name = slurm_job_size;
  require_variables(environment, launcher, asked, size_name);

  WorldPlace place;
  WorldInfo& info = place.info;
  info.size = asked.size >= 0 ? asked.size : *number_of(environment, size_name, 1, world_size_max);
  info.rank = asked.rank >= 0 ? asked.rank : *number_of(environment, names.rank, 0, world_size_max);
  if (info.size < 1 || info.rank >= info.size) {
    throw Error(Errc::misuse, (asked.rank >= 0 ? "the rank" : names.rank) + std::string(" is ") +
                                  std::to_string(info.rank) + ", but " +
                                  (asked.size >= 0 ? "the world size" : size_name) + " is " +
                                  std::to_string(info.size) + ": ranks go from 0 to size-1");
  }
  place.on_node =
      is_of(info, environment, names, size_name) && read_node(environment, launcher, info);
  constexpr int any = std::numeric_limits<int>::max();
  info.attempt = number_of(environment, "TORCHELASTIC_RESTART_COUNT", 0, any).value_or(0);
  if (const auto epoch = value_of(environment, "DLAUNCH_WORKER_EPOCH")) {
    info.epoch = static_cast<std::uint64_t>(
        parse_number("DLAUNCH_WORKER_EPOCH", *epoch, 0, std::numeric_limits<std::int64_t>::max()));
  }
  info.job = value_of(environment, "DLAUNCH_WORKER_JOB").value_or("");
  info.master_addr = value_of(environment, "MASTER_ADDR").value_or("");
  info.master_port = value_of(environment, "MASTER_PORT").value_or("");
  if (asked.master && !info.master_port.empty()) parse_port("MASTER_PORT", info.master_port);
  return place;
}

int parse_port(const std::string& name, const std::string& text) {
  return static_cast<int>(parse_number(name, text, 1, 65535));
}

std::int64_t parse_number(const std::string& name, const std::string& text, std::int64_t low,
                          std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    throw Error(Errc::misuse, name + " is " + in_quotes(text) + ", which is not a number from " +
                                  std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

Environment environment_of(const WorldInfo& info) {
  Environment environment{
      {"RANK", std::to_string(info.rank)},
      {"WORLD_SIZE", std::to_string(info.size)},
      {"LOCAL_RANK", std::to_string(info.local_rank)},
      {true_local_rank, std::to_string(info.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(info.local_size)},
      {"GROUP_RANK", std::to_string(info.node_rank)},
      {"NODE_RANK", std::to_string(info.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(info.node_count)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(info.attempt)},
      {"DLAUNCH_WORKER_EPOCH", std::to_string(info.epoch)},
  };
  if (!info.job.empty()) environment["DLAUNCH_WORKER_JOB"] = info.job;
  if (!info.master_addr.empty()) environment["MASTER_ADDR"] = info.master_addr;
  if (!info.master_port.empty()) environment["MASTER_PORT"] = info.master_port;
  return environment;
}

}  // namespace dlaunch
