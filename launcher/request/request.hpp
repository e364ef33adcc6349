#pragma once

#include "launcher/request/option_table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// What was asked for: on the command line, in variables, by a job scheduler and in a file.
struct Request {
  GivenOptions options{option_table()};
  bool bench = false;                ///< `dlaunch bench`.
  std::vector<std::string> program;  ///< The program and its arguments; with bench, its options.
  std::string scheduler_job;         ///< The scheduler's job of this node and others, if known.
  std::vector<std::string> notes;    ///< Sentences to say once.
};

}  // namespace dlaunch::launcher
