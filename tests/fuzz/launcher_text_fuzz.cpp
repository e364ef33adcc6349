#include "launcher/cli/read_request.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/remote/core/host_lines.hpp"
#include "launcher/report/error_file.hpp"
#include "runtime/base/text/values.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

/// The launcher has an answer to anything that is typed, set, configured or left in an error file.
/// The input's lines are the arguments; those with a capital letter in front and "=" in them are
/// the environment; the whole is every file that is read, and the error file as well.

namespace {

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "launcher_text_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  using namespace dlaunch::launcher;
  const std::string text(data, data + size);
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  for (const auto line : split(text, '\n')) {
    const bool variable =
        !line.empty() && line[0] >= 'A' && line[0] <= 'Z' && line.find('=') != line.npos;
    (variable ? environment : arguments).emplace_back(line);
  }
  const auto parsed = read_job(arguments, environment, [&](const std::string&) { return text; });
  if (const auto* stop = std::get_if<EarlyExit>(&parsed)) {
    insist(stop->code == 0 || stop->code == 64 || stop->code == 78, "an exit code of its own");
    insist(stop->text.ends_with('\n'), "a refusal that is no line");
  } else {
    const auto& options = std::get<JobSpec>(parsed);
    insist(!options.program.empty(), "no program, and no refusal");
    const Machine machine;
    const auto count = worker_count(options, machine, environment);
    if (const auto* workers = std::get_if<int>(&count); workers != nullptr && *workers <= 64) {
      Assignment assignment;
      assignment.local_size = assignment.world_size = *workers;
      const auto plan = make_plan(options, machine, environment, assignment);
      insist(plan.workers.size() == static_cast<std::size_t>(*workers), "a worker too few");
      const std::vector<std::string> files(plan.programs.size());
      insist(!describe_plan(options, machine, plan, files, options.notes).empty(),
             "no words for a plan");
    }
    if (!options.hosts.empty()) {
      remote::Here here;
      here.launcher = "/bin/dlaunch";
      const auto starts = remote::plan_starts(options, environment, here);
      insist(!starts.empty() && starts.size() <= options.hosts.size(), "hosts that nobody starts");
    }
  }
  parse_error_file(text);
  return 0;
}
