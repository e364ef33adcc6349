#include "launcher/agent.hpp"
#include "launcher/front.hpp"
#include "launcher/job_key.hpp"
#include "launcher/options.hpp"
#include "launcher/plan.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/random.hpp"

#include <dlaunch/error.hpp>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <paths.h>
#include <unistd.h>

extern char** environ;

namespace {

using namespace dlaunch;
using namespace dlaunch::launcher;

/// Descriptors of ours must not become somebody's stdin, stdout or stderr.
void fill_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open(_PATH_DEVNULL, O_RDWR);  // Takes the lowest free number.
  }
}

std::vector<std::string> read_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  return variables;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int leave(int code, std::string_view text) {
  const int fd = code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  while (!text.empty()) {
    const auto size = ::write(fd, text.data(), text.size());
    if (size <= 0) return exit_code::internal;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return code;
}

int dry_run(const AgentTask& task) {
  Assignment assignment;
  assignment.job = task.options.job_id.value_or("dlaunch-0");
  assignment.local_size = assignment.world_size = task.workers;
  assignment.agent_store = task.workers > 1;
  assignment.master_port = task.options.master_port;
  assignment.run_directory =
      run_directory_name(task.options, task.environment, assignment.job, "<random>");
  const LaunchPlan plan = make_plan(task.options, task.machine, task.environment, assignment);
  return leave(0, describe_plan(task.options, task.machine, plan));
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  AgentTask task;
  task.environment = read_environment();
  auto parsed =
      parse_options(std::vector<std::string>(argv + 1, argv + argc), task.environment, read_file);
  if (const auto* exit = std::get_if<EarlyExit>(&parsed)) return leave(exit->code, exit->text);
  task.options = std::get<Options>(std::move(parsed));
  task.machine = read_machine();
  if (task.options.numa_binding != NumaBinding::none) {
    task.machine.topology = read_topology(cores_in_affinity_mask());
  }
  const auto workers = worker_count(task.options, task.machine, task.environment);
  if (const auto* exit = std::get_if<EarlyExit>(&workers)) return leave(exit->code, exit->text);
  task.workers = std::get<int>(workers);
  if (task.options.dry_run) return dry_run(task);
  try {
    task.job = task.options.job_id.value_or("dlaunch-" + dlaunch::random_hex(8));
    task.job_key = read_job_key(task.options);
    task.run_directory = RunDirectory(task.options, task.environment, task.job);
  } catch (const dlaunch::Error& error) {
    return leave(exit_code::configuration, std::string("dlaunch: ") + error.what() + "\n");
  }
  const int code = run_front([&task](const AgentSeat& seat) { return run_agent(task, seat); });
  task.run_directory.abandon();  // The agent has seen to it, unless it was killed.
  return code;
}
