#include "launcher/scheduler/node_list.hpp"
#include "launcher/scheduler/scheduler_sources.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

// Launchers of MPI programs that start dlaunch once on each node.
namespace dlaunch::launcher {
namespace {

/// Open MPI's contact of a daemon, "3508.0;tcp://10.0.0.1,10.1.0.1:4233;tcp6://[fd00::2]:5098":
/// the first address. Empty where there is none.
std::string address_of(std::string_view contact) {
  for (const std::string_view scheme : {"tcp://", "tcp6://"}) {
    auto at = contact.find(scheme);
    if (at == std::string_view::npos) continue;
    std::string_view rest = contact.substr(at + scheme.size());
    rest = rest.substr(0, rest.find(';'));
    if (rest.starts_with('[')) return std::string(rest.substr(1, rest.find_first_of("],") - 1));
    return std::string(rest.substr(0, rest.find_first_of(",:")));
  }
  return {};
}

/// Open MPI's contact of mpirun, up to version 4.
constexpr std::string_view hnp_uri = "OMPI_MCA_orte_hnp_uri";

/// The host on which mpirun itself runs, as far as its processes are told.
struct Mpirun {
  Told host;             ///< Its address or its host's name; empty: unknown.
  bool is_here = false;  ///< On this process' node.
};

/// The host of "prterun-HOST-PID@1", as Open MPI 5 calls a job. Empty where it is no such name.
std::string host_in(std::string_view job) {
  constexpr std::string_view begin = "prterun-";
  const auto end = job.rfind('-', job.rfind('@'));
  if (!job.starts_with(begin) || end == job.npos || end <= begin.size()) return {};
  return std::string(job.substr(begin.size(), end - begin.size()));
}

Mpirun mpirun_of(const Variables& variables) {
  const std::string head = variables.text(hnp_uri);
  if (std::string address = address_of(head); !address.empty()) {
    return {{std::move(address), std::string(hnp_uri)},
            variables.text("OMPI_MCA_orte_local_daemon_uri") == head};
  }
  // Open MPI 5 tells only its name, and of daemons the one of this node: mpirun's own is number 0,
  // in "prterun-n1-40@0.0;tcp4://10.77.0.1:55617".
  const std::string daemon = variables.text("PMIX_SERVER_URI4");
  return {{host_in(variables.text("PMIX_NAMESPACE")), "PMIX_NAMESPACE"},
          std::string_view(daemon).substr(0, daemon.find(';')).ends_with("@0.0")};
}

/// A name fit for --rdzv-id, or nothing.
Told job_id(std::string_view prefix, std::string_view name, std::string_view from) {
  constexpr std::size_t name_max = 100;
  const bool fit =
      !name.empty() && name.size() <= name_max && std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) ||
               (c != 0 && std::strchr(".,:;@%+=_-", c));
      });
  if (!fit) return {};
  return {std::string(prefix) + std::string(name), std::string(from)};
}

/// Reads the number of processes and this one's rank, and checks that it is alone on its node.
void read_ranks(SchedulerPlace& place, const Variables& variables, std::string_view rank,
                std::string_view size, std::string_view local_size, std::string_view starter,
                std::string_view once) {
  const int count = variables.number(place, size, 1, listed_nodes_max);
  place.node_count = count;
  place.count_from = size;
  place.node_rank = variables.number(place, rank, 0, count - 1);
  place.rank_from = rank;
  place.first = place.node_rank == 0;
  const long local = variables.number_if(local_size).value_or(1);
  if (local <= 1) return;
  refuse_several(place, starter, static_cast<int>(std::min<long>(local, listed_nodes_max)), 1,
                 once);
}

std::string short_name(std::string_view host) {
  return std::string(host.substr(0, host.find('.')));
}

/// In a Slurm job the first process is on the first node, unless hosts were chosen by hand. The
/// first process checks this, and otherwise ends the job with a sentence.
void meet_in_slurm_job(SchedulerPlace& place, const Variables& variables,
                       std::string_view own_name) {
  Told first = first_of_slurm_job(variables);
  const auto own = variables.find(own_name);
  if (first.value.empty() || (place.first && own && short_name(*own) != short_name(first.value))) {
    return;
  }
  place.head = std::move(first);
  if (place.job_id.value.empty()) {
    place.job_id = job_id("slurm-", variables.text("SLURM_JOB_ID"), "SLURM_JOB_ID");
  }
}

/// The advice if the starter tells no address.
std::string no_address(std::string_view starter) {
  return std::string(starter) +
         " tells the nodes of the job no address to meet at: add --rdzv-endpoint HOST:PORT, HOST "
         "being the first of them; where " +
         std::string(starter) +
         " itself runs there: --rdzv-endpoint \"$(hostname):" DLAUNCH_MEETING_PORT "\"";
}

}  // namespace

bool read_open_mpi(SchedulerPlace& place, const Variables& variables, const FileReader&) {
  if (!variables.has("OMPI_COMM_WORLD_RANK")) return false;
  read_ranks(place, variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun", "mpirun --map-by ppr:1:node");
  place.job_id = job_id("mpirun-", variables.text("PMIX_NAMESPACE"), "PMIX_NAMESPACE");
  place.port = port_of_job(place.job_id.value);
  const Mpirun starter = mpirun_of(variables);
  // A batch job's list is better than a name: mpirun may run beside the job's nodes.
  if (starter.host.from != hnp_uri) meet_in_slurm_job(place, variables, "PMIX_HOSTNAME");
  if (!place.head.value.empty()) return true;
  if (starter.host.value.empty()) {
    place.head_missing = no_address("mpirun");
    return true;
  }
  // If mpirun itself runs on a node of the job, the first process is there. Only the first process
  // can check this; otherwise it ends the job with a sentence.
  if (place.first && !starter.is_here) {
    place.head_missing = "mpirun runs on " + starter.host.value +
                         ", which is not the job's first node, so the others cannot know where to "
                         "meet: add --rdzv-endpoint HOST:PORT, HOST being the first node (" +
                         (variables.has("PMIX_HOSTNAME") ? variables.text("PMIX_HOSTNAME")
                                                         : std::string("where this is said")) +
                         ")";
    return true;
  }
  place.head = starter.host;
  return true;
}

bool read_hydra(SchedulerPlace& place, const Variables& variables, const FileReader&) {
  // srun --mpi=pmi2 sets PMI_RANK, too, but not MPI_LOCALNRANKS.
  if (!variables.has("PMI_RANK") || !variables.has("PMI_SIZE") ||
      !variables.has("MPI_LOCALNRANKS")) {
    return false;
  }
  read_ranks(place, variables, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpiexec",
             "mpiexec -ppn 1");
  meet_in_slurm_job(place, variables, "MPIR_CVAR_CH3_INTERFACE_HOSTNAME");
  const long job = variables.number_if("SLURM_JOB_ID").value_or(0);
  place.port = port_of_job(static_cast<std::uint64_t>(job), 0);
  place.head_missing = no_address("mpiexec");
  return true;
}

bool read_pmix(SchedulerPlace& place, const Variables& variables, const FileReader&) {
  if (!variables.has("PMIX_RANK") || !variables.has("PMIX_NAMESPACE")) return false;
  place.node_rank = variables.number(place, "PMIX_RANK", 0, listed_nodes_max - 1);
  place.rank_from = "PMIX_RANK";
  place.first = place.node_rank == 0;
  place.job_id = job_id("pmix-", variables.text("PMIX_NAMESPACE"), "PMIX_NAMESPACE");
  place.port = port_of_job(place.job_id.value);
  place.head_missing =
      "PMIx tells the nodes of the job no address to meet at: add --rdzv-endpoint HOST:PORT, HOST "
      "being one of them";
  place.alone = "process " + variables.text("PMIX_RANK") +
                " of a PMIx job runs as a job of its own: the variables do not tell how many there "
                "are; --nnodes N and --rdzv-endpoint make one job of them, --nnodes 1 says that "
                "this is meant";
  return true;
}

}  // namespace dlaunch::launcher
