#include "launcher/bench.hpp"

#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch::launcher {

namespace {

/// The number of ranks the job will have; 0 where more nodes may come.
int ranks_expected(const JobSpec& spec, int workers) {
  return spec.nodes.elastic() ? 0 : spec.nodes.most * workers;
}

EarlyExit cannot_start(const std::string& path, int error) {
  return {exit_code::cannot_execute,
          "dlaunch: " + path + " cannot be started: " + std::strerror(error) + "\n"};
}

}  // namespace

std::optional<EarlyExit> check_bench(const JobSpec& spec, int workers) {
  const std::string& path = spec.program.front();
  if (::access(path.c_str(), F_OK) != 0) {
    return EarlyExit{exit_code::not_found, "dlaunch: bench needs the program " + path +
                                               ", which is not there; it is built and installed "
                                               "together with dlaunch\n"};
  }

  std::vector<std::string> command = spec.program;
  command.insert(command.begin() + 1,
                 "--options-only=" + std::to_string(ranks_expected(spec, workers)));
  std::vector<char*> arguments;
  for (auto& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int failed =
      ::posix_spawn(&child, path.c_str(), nullptr, nullptr, arguments.data(), environ);
  if (failed != 0) return cannot_start(path, failed);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return cannot_start(path, errno);
  }
  const bool help = std::any_of(spec.program.begin() + 1, spec.program.end(),
                                [](const auto& word) { return word == "--help" || word == "-h"; });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !help) return std::nullopt;
  if (WIFEXITED(status)) return EarlyExit{WEXITSTATUS(status), ""};
  return EarlyExit{exit_code::internal, "dlaunch: " + path + " was killed by signal " +
                                            std::to_string(WTERMSIG(status)) +
                                            " while it read its options\n"};
}

}  // namespace dlaunch::launcher
