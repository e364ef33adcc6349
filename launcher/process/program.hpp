#pragma once

#include "launcher/plan/plan.hpp"

#include <optional>
#include <string>

namespace dlaunch::launcher {

/// Why an attempt could not be started, and dlaunch's exit code for it.
struct StartProblem {
  int exit_code = 0;
  std::string sentence;
};

/// The path of a program, as execvp would find it in `directory` (empty: the current one); `error`
/// is 0, ENOENT or EACCES.
struct ProgramPath {
  std::string path;
  int error = 0;
};
ProgramPath find_program(const std::string& name, const std::string& search_path,
                         const std::string& directory = {});
/// The path as seen from `directory`; an absolute path, or an empty directory, changes nothing.
std::string path_in(const std::string& directory, const std::string& path);

/// Why workers cannot run in a directory; empty is the current one, where they can.
std::optional<StartProblem> directory_problem(const std::string& directory);

/// Why a file cannot be written that is made at the job's end, such as "--result /a/b: ..."; looked
/// at before the start, when nothing is lost yet.
std::optional<StartProblem> report_problem(std::string_view flag, const std::string& path);

/// The file to execute, or why there is none: the directory, the program or its script is missing.
struct ProgramFound {
  std::string path;
  std::optional<StartProblem> problem;
};
ProgramFound find_program(const ProgramPlan& program);

/// The meaning of an exec error. `program` is the name as it was given.
StartProblem exec_problem(const std::string& program, const std::string& path, int error);
/// Finds a file that the kernel does not know how to execute, and a shell could not read either.
/// Nullopt for text without "#!".
std::optional<StartProblem> no_script(const std::string& program, const std::string& path);

/// The prospect of a start.
struct Prospect {
  std::string files;  ///< "/usr/bin/python3, which reads /jobs/train.py".
  std::optional<StartProblem> problem;
};
/// Looks at the files as the kernel would, and starts nothing. A doubt is no problem, as with a
/// file that may be executed and not read.
Prospect look_ahead(const ProgramPlan& program);

}  // namespace dlaunch::launcher
