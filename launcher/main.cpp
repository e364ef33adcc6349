#include "launcher/bench.hpp"
#include "launcher/cli/read_request.hpp"
#include "launcher/job/agent.hpp"
#include "launcher/job/front.hpp"
#include "launcher/job/job_deadline.hpp"
#include "launcher/job/job_key.hpp"
#include "launcher/machine/interpreter.hpp"
#include "launcher/machine/nvml.hpp"
#include "launcher/plan/environment.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/pmi/offer.hpp"
#include "launcher/process/program.hpp"
#include "launcher/remote/core/host_lines.hpp"
#include "launcher/remote/starter.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/segment/processors.hpp"

#include <dlaunch/error.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <paths.h>
#include <unistd.h>
#ifdef DLAUNCH_STATIC
#include <nss.h>
#endif

namespace {

using namespace dlaunch;
using namespace dlaunch::launcher;

/// Empty if the directory is gone.
std::string current_directory() {
  std::error_code error;
  const auto directory = std::filesystem::current_path(error);
  return error ? std::string() : directory.string();
}

/// A name alone does not identify a node: hosts may share one, and agents may share a host, an
/// address or, in containers, a process number.
std::string node_id_of(const AgentTask& task) {
  if (!task.spec.node_id.empty()) return task.spec.node_id;
  if (task.spec.meeting.kind == Meeting::Kind::one_node) return task.machine.hostname;
  return task.machine.hostname + ":" + std::to_string(::getpid()) + "-" + random_hex(8);
}

/// A secret that is missing, or that others can read, is a matter of configuration.
int code_of_start(const Error& error) {
  const bool away = error.errc() == Errc::unreachable || error.errc() == Errc::timeout ||
                    error.errc() == Errc::refused;
  return away ? exit_code::unreachable : exit_code::configuration;
}

/// The file that shows which MPI a part's program uses; empty where there is none.
std::string program_file(const AgentTask& task, const Part& part) {
  const std::string& program = part.program.front();
  if (runs_under_python(part)) return path_in(part.directory, program);
  if (const auto script = pmi::script_of_python(part.program)) {
    return path_in(part.directory, *script);
  }
  const auto environment = inherited_by(part, task.environment);
  const auto search_path = lookup(environment, "PATH").value_or(_PATH_DEFPATH);
  const auto found = find_program(program, std::string(search_path), part.directory);
  return found.error == 0 ? found.path : "";
}

/// The protocols by which any of the programs may ask for its rank.
pmi::Speech speech_of(const AgentTask& task) {
  pmi::Speech all;
  for (const Part* part : task.spec.parts()) {
    const auto one = mpi_offer(task.spec, *part, program_file(task, *part));
    all.pmi = all.pmi || one.pmi;
    all.pmix = all.pmix || one.pmix;
    if (all.why.empty()) all.why = one.why;
  }
  return all;
}

int refuse(const StartProblem& problem) {
  return say_and_exit_with(problem.exit_code, "dlaunch: " + problem.sentence + "\n");
}

/// Prints the plan. Returns the code with which the job would end if a program were missing.
int dry_run(const AgentTask& task) {
  Assignment assignment = assignment_before_meeting(task.spec, task.workers);
  assignment.run_directory = run_directory_name(run_directory_prefix(task.spec, task.environment),
                                                assignment.job, "<random>");
  const LaunchPlan plan = make_plan(task.spec, task.machine, task.environment, assignment);
  std::vector<std::string> files;
  std::optional<StartProblem> problem;
  for (const ProgramPlan& program : plan.programs) {
    auto prospect = look_ahead(program);
    files.push_back(std::move(prospect.files));
    if (!problem) problem = std::move(prospect.problem);
  }
  const int code =
      say_and_exit_with(0, describe_plan(task.spec, task.machine, plan, files, task.notes));
  return problem && code == 0 ? refuse(*problem) : code;
}

/// The secret that the agents of other hosts are given: that of --secret-fd, or a random one where
/// we choose the place at which they meet. Empty for none; nullopt where it cannot be read.
std::optional<std::string> secret_for_hosts(const JobSpec& spec) {
  const bool own = !spec.secret_file.empty() || !spec.secret_credential.empty();
  if (!spec.secret_fd) return remote::chooses_meeting(spec) && !own ? random_hex(64) : "";
  constexpr std::size_t secret_bytes_max = 4096;  // A new pipe has room for it.
  auto text = read_whole_file("/dev/fd/" + std::to_string(*spec.secret_fd));
  if (text && text->ends_with('\n')) text->pop_back();
  const bool line = text && !text->empty() && text->size() < secret_bytes_max &&
                    text->find('\n') == std::string::npos && text->find('\0') == std::string::npos;
  return line ? text : std::nullopt;
}

/// Starts the agents of other hosts; this process has no agent of its own.
int start_on_hosts(JobSpec spec, std::vector<std::string> environment, const std::string& launcher,
                   Parent parent) {
  for (const Part* part : spec.parts()) {
    if (const auto exit = check_variables(*part, environment))
      return say_and_exit_with(exit->code, exit->text);
  }
  const auto secret = secret_for_hosts(spec);
  if (!secret) {
    return say_and_exit_with(exit_code::configuration,
                             "dlaunch: --secret-fd: a line of text is wanted for the hosts, and "
                             "there is none\n");
  }
  const remote::Here here{.launcher = launcher,
                          .directory = current_directory(),
                          .hostname = read_machine().hostname,
                          .job = "dlaunch-" + (spec.dry_run ? "0" : random_hex(8)),
                          .secret = !secret->empty()};
  const Voice voice{.json = spec.log_format == LogFormat::json,
                    .quiet = spec.quiet,
                    .job = spec.job_id.value_or(here.job),
                    .node = here.hostname};
  remote::StarterTask task{std::move(spec), std::move(environment), voice, {},
                           *secret,         std::move(parent)};
  task.starts = remote::plan_starts(task.spec, task.environment, here);
  if (task.spec.dry_run) {
    return say_and_exit_with(0, remote::describe_starts(task.spec, task.starts, task.spec.notes));
  }
  const FrontRules rules{task.spec.signals, task.spec.shutdown_timeout};
  return run_front(rules, voice,
                   [&](const AgentSeat& seat) { return remote::run_starter(task, seat); });
}

}  // namespace

int main(int argc, char** argv) {
  const auto begun = Clock::now();
  fill_standard_descriptors();
  auto parent = Parent::at_start();
#ifdef DLAUNCH_STATIC
  // Other ways to look up a host are libraries, which fit only the C library of their own system.
  ::__nss_configure_lookup("hosts", "files dns");
#endif
  if (const auto* subcommand = argc > 1 ? find_subcommand(argv[1]) : nullptr) {
    const auto exit = subcommand->run(std::vector<std::string>(argv + 2, argv + argc));
    return say_and_exit_with(exit.code, exit.text);
  }
  const std::string launcher = launcher_path();
  auto environment = read_environment();
  auto asked =
      read_job(std::vector<std::string>(argv + 1, argv + argc), environment, read_whole_file,
               {.ignored_signals = ignored_signals(),
                .directory = current_directory(),
                .bench_program =
                    launcher.substr(0, launcher.rfind('/') + 1) + LaunchContext().bench_program});
  if (const auto* exit = std::get_if<EarlyExit>(&asked))
    return say_and_exit_with(exit->code, exit->text);
  if (!std::get<JobSpec>(asked).hosts.empty()) {
    return start_on_hosts(std::get<JobSpec>(std::move(asked)), std::move(environment), launcher,
                          std::move(parent));
  }
  AgentTask task{std::get<JobSpec>(std::move(asked)), std::move(environment), {}};
  task.begun = begun;
  task.parent = std::move(parent);
  task.notes = task.spec.notes;
  const auto deadline = find_deadline(task.spec.deadline, WallClock::now());
  task.deadline = deadline.at;
  if (deadline.at) {
    task.deadline_latest = find_latest(task.spec.deadline_latest, *deadline.at, WallClock::now());
  }
  if (!deadline.note.empty()) task.notes.push_back(deadline.note);
  task.machine = read_machine();
  task.machine.colours = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 &&
                         terminal_redraws(task.environment);
  task.machine.python = environment_python(task.environment, launcher);
  if (task.spec.binding != Binding::none) {
    task.machine.topology = read_topology(cores_in_affinity_mask());
    task.machine.topology.mig_devices =
        mig_devices_by_nvml(visible_gpus(task.machine, inherited_by(task.spec, task.environment)));
  }
  const auto workers = worker_count(task.spec, task.machine, task.environment);
  if (const auto* exit = std::get_if<EarlyExit>(&workers))
    return say_and_exit_with(exit->code, exit->text);
  task.workers = std::get<int>(workers);
  if (auto note = note_of_few_gpus(task.spec, task.machine, task.environment, task.workers)) {
    task.notes.push_back(*std::move(note));
  }
  if (auto note = note_of_shared_cores(task.spec, task.machine, task.environment, task.workers)) {
    task.notes.push_back(*std::move(note));
  }
  if (task.spec.bench) {
    if (const auto exit = check_bench(task.spec, task.workers))
      return say_and_exit_with(exit->code, exit->text);
  }
  task.mpi = speech_of(task);
  if (task.spec.dry_run) return dry_run(task);
  // Problems are found here, before other nodes wait for this one.
  for (const Part* part : task.spec.parts()) {
    if (const auto problem = directory_problem(part->directory)) return refuse(*problem);
  }
  try {
    task.job = task.spec.job_id.value_or("dlaunch-" + random_hex(8));
    task.node_id = node_id_of(task);
    task.job_key = read_job_key(task.spec);
    task.run_directory = RunDirectory(task.spec, task.environment);
  } catch (const dlaunch::Error& error) {
    return say_and_exit_with(code_of_start(error), std::string("dlaunch: ") + error.what() + "\n");
  }
  // They may lie in the folder of --log-dir, which is there now.
  for (const auto& [flag, path] : {std::pair("--result", task.spec.result_file),
                                   std::pair("--flight-file", task.spec.flight_file)}) {
    if (!path) continue;
    if (const auto problem = report_problem(flag, *path)) return refuse(*problem);
  }
  const FrontRules rules{task.spec.signals, task.spec.shutdown_timeout};
  const int code = run_front(rules, voice_of(task),
                             [&task](const AgentSeat& seat) { return run_agent(task, seat); });
  task.run_directory.abandon();  // The agent has done it, unless it was killed.
  return code;
}
