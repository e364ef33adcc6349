#include "launcher/scheduler/node_list.hpp"
#include "launcher/scheduler/scheduler_sources.hpp"

namespace dlaunch::launcher {
namespace {

/// The step id in salloc's shell on a node if LaunchParameters has use_interactive_step.
constexpr std::string_view interactive_step = "4294967290";

/// How long before Slurm's end ours comes: Slurm's own SIGTERM does not say why it comes.
constexpr long end_margin_s = 10;
/// Numbers from here on are Slurm's words for no end, or an endless time.
constexpr long no_time = 0xfffffffe;

/// A batch script has SLURM_NTASKS in its environment, which srun takes for --ntasks unless that is
/// given; it then ignores --ntasks-per-node with a warning. So the advice names both.
std::string srun_once(int nodes) {
  return "srun --ntasks=" + std::to_string(nodes) + " --ntasks-per-node=1";
}

/// Describes a process outside of any srun step: a batch script's own, or a shell under salloc.
void describe_unstarted(SchedulerPlace& place, const Variables& variables) {
  const long nodes = variables.number_if("SLURM_JOB_NUM_NODES").value_or(1);
  if (nodes <= 1 || nodes > listed_nodes_max) {
    place.node_count = 1;
    return;
  }
  const std::string sentence = "this is one node of Slurm job " + variables.text("SLURM_JOB_ID") +
                               ", which has " + std::to_string(nodes) + ": " +
                               srun_once(static_cast<int>(nodes)) + " dlaunch ... uses them all";
  place.head_missing = sentence;
  place.alone = sentence + "; --nnodes 1 says that one is meant";
}

void refuse_contradiction(SchedulerPlace& place, const std::string& what) {
  if (!place.refusal.empty()) return;
  place.refusal = "Slurm's variables contradict each other: " + what +
                  "; they may be left over from another step: start dlaunch by srun, or give "
                  "--nnodes 1 to run this node by itself";
}

/// Finds the first node by the step's list of names, and checks that this node is where the list
/// says.
void locate(SchedulerPlace& place, const Variables& variables) {
  const std::string list = variables.text("SLURM_STEP_NODELIST");
  auto read = read_node_list(list);
  if (const auto* complaint = std::get_if<Complaint>(&read)) {
    return refuse_contradiction(place, "SLURM_STEP_NODELIST: " + complaint->sentence);
  }
  const auto& names = std::get<std::vector<std::string>>(read);
  if (names.size() != static_cast<std::size_t>(*place.node_count)) {
    return refuse_contradiction(place,
                                "SLURM_STEP_NUM_NODES is " + std::to_string(*place.node_count) +
                                    ", SLURM_STEP_NODELIST names " + std::to_string(names.size()));
  }
  const auto& own = names[static_cast<std::size_t>(*place.node_rank)];
  const std::string told = variables.text("SLURMD_NODENAME");
  if (!told.empty() && told != own) {
    return refuse_contradiction(
        place,
        "SLURMD_NODENAME is " + told + ", but node SLURM_NODEID of SLURM_STEP_NODELIST is " + own);
  }
  place.node_name = {own, "SLURM_STEP_NODELIST"};
  place.head = {names.front(), "SLURM_STEP_NODELIST"};
}

void read_step(SchedulerPlace& place, const Variables& variables) {
  const int nodes = variables.number(place, "SLURM_STEP_NUM_NODES", 1, listed_nodes_max);
  place.node_count = nodes;
  place.count_from = "SLURM_STEP_NUM_NODES";
  const long tasks = variables.number_if("SLURM_STEP_NUM_TASKS").value_or(nodes);
  if (tasks > nodes || variables.number_if("SLURM_LOCALID").value_or(0) > 0) {
    refuse_several(place, "srun", static_cast<int>(std::min(tasks, 1'000'000L)), nodes,
                   srun_once(nodes));
  }
  if (nodes == 1) return;
  place.node_rank = variables.number(place, "SLURM_NODEID", 0, nodes - 1);
  place.rank_from = "SLURM_NODEID";
  place.first = place.node_rank == 0;
  const auto job = variables.number_if("SLURM_JOB_ID");
  const auto step = variables.number_if("SLURM_STEP_ID");
  if (!job || !step) {
    return refuse_contradiction(place, "SLURM_JOB_ID or SLURM_STEP_ID is no number");
  }
  place.port = port_of_job(static_cast<std::uint64_t>(*job), static_cast<std::uint64_t>(*step));
  place.job_id = {"slurm-" + std::to_string(*job) + "." + std::to_string(*step),
                  "SLURM_JOB_ID, SLURM_STEP_ID"};
  locate(place, variables);
}

}  // namespace

bool read_slurm(SchedulerPlace& place, const Variables& variables, const FileReader&) {
  if (!variables.has("SLURM_JOB_ID")) return false;
  const auto step = variables.find("SLURM_STEP_ID");
  if (step && *step != interactive_step && variables.has("SLURM_STEP_NUM_NODES")) {
    read_step(place, variables);
  } else {
    describe_unstarted(place, variables);
  }
  return true;
}

Told deadline_of_slurm_job(const Variables& variables) {
  const auto end = variables.number_if("SLURM_JOB_END_TIME");
  if (!end || *end <= end_margin_s || *end >= no_time || !variables.has("SLURM_JOB_ID")) return {};
  return {"@" + std::to_string(*end - end_margin_s), "SLURM_JOB_END_TIME"};
}

Told first_of_slurm_job(const Variables& variables) {
  const auto list = variables.find("SLURM_JOB_NODELIST");
  if (!list) return {};
  const auto read = read_node_list(*list);
  const auto* names = std::get_if<std::vector<std::string>>(&read);
  if (names == nullptr) return {};
  return {names->front(), "SLURM_JOB_NODELIST"};
}

}  // namespace dlaunch::launcher
