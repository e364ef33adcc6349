#include "launcher/bench.hpp"

#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch::launcher {

namespace {

/// How many ranks there will be; 0 where more nodes may come.
int ranks_expected(const Options& options, int workers) {
  return options.nodes.least == options.nodes.most ? options.nodes.most * workers : 0;
}

EarlyExit cannot_start(const std::string& path, int error) {
  return {exit_code::cannot_execute,
          "dlaunch: " + path + " cannot be started: " + std::strerror(error) + "\n"};
}

}  // namespace

std::optional<EarlyExit> prepare_bench(Options& options, int workers) {
  std::error_code error;
  const auto launcher = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (launcher.parent_path() / options.program.front()).string();
  if (error || ::access(path.c_str(), F_OK) != 0) {
    return EarlyExit{exit_code::not_found, "dlaunch: bench needs the program " + path +
                                               ", which is not there; it is built and installed "
                                               "together with dlaunch\n"};
  }
  options.program.front() = path;

  std::vector<std::string> command = options.program;
  command.insert(command.begin() + 1,
                 "--options-only=" + std::to_string(ranks_expected(options, workers)));
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
  const bool help = std::any_of(options.program.begin() + 1, options.program.end(),
                                [](const auto& word) { return word == "--help" || word == "-h"; });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !help) return std::nullopt;
  if (WIFEXITED(status)) return EarlyExit{WEXITSTATUS(status), ""};
  return EarlyExit{exit_code::internal, "dlaunch: " + path + " was killed by signal " +
                                            std::to_string(WTERMSIG(status)) +
                                            " while it read its options\n"};
}

}  // namespace dlaunch::launcher
